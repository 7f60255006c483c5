package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	await     = 5 * time.Second  // long poll of the simple consumers
	invisible = 10 * time.Second // the shortest a server takes
	batch     = 16
)

// lab is what the checks share: addresses, and a producer.
type lab struct {
	producing, consuming string // HOST:PORT, may be the same
	run                  string
	producer             rmq.Producer
	tries                atomic.Int64 // so far
}

func topic(check string) string { return "it-go-" + check }

func (l *lab) config(endpoint, check string) *rmq.Config {
	config := &rmq.Config{Endpoint: endpoint, Credentials: &credentials.SessionCredentials{}}
	if check != "" {
		config.ConsumerGroup = topic(check) + "-" + l.run
	}
	return config
}

func (l *lab) start() error {
	// A producer of this client needs a topic at its start, or it waits for ever.
	p, err := rmq.NewProducer(l.config(l.producing, ""), rmq.WithTopics(topic("send")))
	if err != nil {
		return err
	}
	l.producer = p
	return p.Start()
}

// consumer starts a simple consumer of the topic of a check.
func (l *lab) consumer(check, tags string) (*consumer, error) {
	return l.consumerOf(check, topic(check), rmq.NewFilterExpression(tags))
}

// consumerOf starts a simple consumer of a topic, with the group of a check.
func (l *lab) consumerOf(check, topic string, filter *rmq.FilterExpression) (*consumer, error) {
	c, err := rmq.NewSimpleConsumer(l.config(l.consuming, check),
		rmq.WithSimpleAwaitDuration(await),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	if err != nil {
		return nil, err
	}
	return &consumer{SimpleConsumer: c, try: l.newTry(check), run: l.run}, c.Start()
}

// try is one go at a check: it passes over messages of other tries and runs.
type try struct {
	check string
	id    string // property "try" of its messages
}

func (l *lab) newTry(check string) try {
	return try{check: check, id: fmt.Sprintf("%s-%d", l.run, l.tries.Add(1))}
}

func (t try) message(i string, body []byte) *rmq.Message {
	m := &rmq.Message{Topic: topic(t.check), Body: body}
	m.AddProperty("try", t.id)
	m.AddProperty("i", i)
	return m
}

// send returns the id that the server answered.
func send(p rmq.Producer, m *rmq.Message) (string, error) {
	receipts, err := p.Send(context.Background(), m)
	if err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	if len(receipts) != 1 || receipts[0].MessageID == "" {
		return "", fmt.Errorf("send: %d receipts, want one with an id", len(receipts))
	}
	return receipts[0].MessageID, nil
}

func attempt(mv *rmq.MessageView, want int32) error {
	if got := mv.GetDeliveryAttempt(); got != want {
		return fmt.Errorf("delivery attempt %d, want %d", got, want)
	}
	return nil
}

// between tells whether something took at least lo and at most hi.
func between(what string, took, lo, hi time.Duration) error {
	if took < lo || took > hi {
		return fmt.Errorf("%s after %v, want %v to %v", what, took.Round(time.Millisecond), lo, hi)
	}
	return nil
}

// notFound tells whether an error is the server's TOPIC_NOT_FOUND.
func notFound(what string, err error) error {
	if err == nil {
		return errors.New(what + " an unknown topic is no error")
	}
	if status, ok := rmq.AsErrRpcStatus(err); !ok || status.Code != int32(v2.Code_TOPIC_NOT_FOUND) {
		return fmt.Errorf("%s an unknown topic: %w, want TOPIC_NOT_FOUND", what, err)
	}
	return nil
}

// body makes bytes that cannot be compressed, always the same for one i.
func body(i, size int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), uint64(size)))
	b := make([]byte, size)
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}
