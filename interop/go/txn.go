package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// checkAfter is when a server asks about a transaction that nobody has ended.
const checkAfter = 6 * time.Second

// checker answers the questions of the server about transactions, and remembers them.
type checker struct {
	try    string
	answer rmq.TransactionResolution
	mu     sync.Mutex // guards asked
	asked  []string   // ids of messages
}

func (c *checker) check(mv *rmq.MessageView) rmq.TransactionResolution {
	if mv.GetProperties()["try"] != c.try {
		return rmq.ROLLBACK
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, mv.GetMessageId())
	return c.answer
}

// want tells whether the server asked about a message: an empty id stands for none.
func (c *checker) want(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" && len(c.asked) > 0 {
		return fmt.Errorf("the server asked about the messages %v", c.asked)
	}
	for _, asked := range c.asked {
		if asked != id {
			return fmt.Errorf("the server asked about the message %s, want %s", asked, id)
		}
	}
	if id != "" && len(c.asked) == 0 {
		return fmt.Errorf("the server did not ask about the message")
	}
	return nil
}

// transactional starts a producer of the topic of a check.
func (l *lab) transactional(endpoint, check string, c *checker) (rmq.Producer, error) {
	p, err := rmq.NewProducer(l.config(endpoint, ""), rmq.WithTopics(topic(check)),
		rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: c.check}))
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// half sends a message in a transaction and returns its id.
func half(p rmq.Producer, m *rmq.Message) (rmq.Transaction, string, error) {
	txn := p.BeginTransaction()
	receipts, err := p.SendWithTransaction(context.Background(), m, txn)
	if err != nil {
		return nil, "", fmt.Errorf("send: %w", err)
	}
	if len(receipts) != 1 || receipts[0].MessageID == "" || receipts[0].TransactionId == "" {
		return nil, "", fmt.Errorf("send: %v, want one receipt with the ids of message and transaction", receipts)
	}
	return txn, receipts[0].MessageID, nil
}

func (l *lab) transactionCommit() error {
	c, err := l.consumer("commit", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	asked := &checker{try: c.id, answer: rmq.ROLLBACK}
	p, err := l.transactional(l.producing, "commit", asked)
	if err != nil {
		return err
	}
	defer p.GracefulStop()
	txn, id, err := half(p, c.message("1", []byte("x")))
	if err != nil {
		return err
	}
	if err := c.quiet(2 * time.Second); err != nil {
		return fmt.Errorf("before the commit: %w", err)
	}
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := c.committed(id, 5*time.Second); err != nil {
		return err
	}
	if err := c.quiet(checkAfter + 2*time.Second); err != nil {
		return err
	}
	return asked.want("")
}

func (l *lab) transactionRollback() error {
	c, err := l.consumer("rollback", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	asked := &checker{try: c.id, answer: rmq.COMMIT}
	p, err := l.transactional(l.producing, "rollback", asked)
	if err != nil {
		return err
	}
	defer p.GracefulStop()
	txn, _, err := half(p, c.message("1", []byte("x")))
	if err != nil {
		return err
	}
	if err := txn.RollBack(); err != nil {
		return fmt.Errorf("rollback: %w", err)
	}
	if err := c.quiet(checkAfter + 4*time.Second); err != nil {
		return fmt.Errorf("after the rollback: %w", err)
	}
	return asked.want("")
}

func (l *lab) transactionCheck() error {
	c, err := l.consumer("check", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	asked := &checker{try: c.id, answer: rmq.COMMIT}
	p, err := l.transactional(l.producing, "check", asked)
	if err != nil {
		return err
	}
	defer p.GracefulStop()
	sent := time.Now()
	_, id, err := half(p, c.message("1", []byte("x")))
	if err != nil {
		return err
	}
	if err := c.committed(id, checkAfter+15*time.Second); err != nil {
		return err
	}
	if err := between("the message came", time.Since(sent), checkAfter, checkAfter+10*time.Second); err != nil {
		return err
	}
	return asked.want(id)
}

// transactionRestart sends from a process that ends before the check: a producer of this
// client that is stopped keeps its connection and answers a check all the same. Another
// producer of the topic, at the other address, is asked.
func (l *lab) transactionRestart() error {
	c, err := l.consumer("restart", "*")
	if err != nil {
		return err
	}
	defer c.GracefulStop()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := exec.Command(self, "-endpoints", l.producing, "-half", c.id).Output()
	if err != nil {
		return fmt.Errorf("the process that sends: %w", err)
	}
	asked := &checker{try: c.id, answer: rmq.COMMIT}
	p, err := l.transactional(l.consuming, "restart", asked)
	if err != nil {
		return err
	}
	defer p.GracefulStop()
	id := string(out)
	if err := c.committed(id, checkAfter+25*time.Second); err != nil {
		return err
	}
	return asked.want(id)
}

// sendHalf sends the message of transactionRestart and prints its id.
func (l *lab) sendHalf(tryID string) error {
	p, err := l.transactional(l.producing, "restart", &checker{})
	if err != nil {
		return err
	}
	_, id, err := half(p, try{check: "restart", id: tryID}.message("1", []byte("x")))
	if err == nil {
		fmt.Print(id)
	}
	return err
}

// committed receives and acknowledges the message of a transaction.
func (c *consumer) committed(id string, within time.Duration) error {
	mvs, err := c.take(1, invisible, time.Now().Add(within))
	if err != nil {
		return err
	}
	if mvs[0].GetMessageId() != id {
		return fmt.Errorf("id %s, want %s", mvs[0].GetMessageId(), id)
	}
	if err := attempt(mvs[0], 1); err != nil {
		return err
	}
	return c.Ack(context.Background(), mvs[0])
}
