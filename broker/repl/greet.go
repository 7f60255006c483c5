package repl

import (
	"context"
	"time"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// greet does the handshake and begins a session. An error was told to the follower.
func (l *Leader) greet(stream serverStream, in <-chan *replicationv1.ReplicateRequest) (*session, follower.Welcome, error) {
	refuse := func(reason replicationv1.CloseReason, err error) (*session, follower.Welcome, error) {
		_ = stream.Send(l.bye(reason, err).response()) // the error itself is sent, too
		return nil, follower.Welcome{}, err
	}
	for range pagesMax {
		m, err := l.next(stream.Context(), in)
		if err != nil {
			return refuse(replicationv1.CloseReason_CLOSE_REASON_UNSPECIFIED, err)
		}
		if m.GetClose() != nil {
			return nil, follower.Welcome{}, mqerr.New(mqerr.Cancelled, "the follower left within the handshake: %s", m.GetClose().GetText())
		}
		if m.GetHello() == nil {
			return refuse(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, mqerr.New(mqerr.Invalid, "a stream of replication that does not begin with a hello"))
		}
		h := helloOf(m.GetHello())
		if reason, err := l.judge(&h); err != nil {
			return refuse(reason, err)
		}
		s, w, err := l.welcome(stream, &h)
		if err != nil {
			return refuse(reasonFor(err), err)
		}
		if err := stream.Send(welcomeResponse(l.o.Release, &w)); err != nil {
			if s != nil {
				l.ask(func() { l.remove(s) })
			}
			return nil, w, err
		}
		switch {
		case s != nil:
			return s, w, nil
		case w.Verdict != replica.MoreSpans:
			return nil, w, mqerr.New(mqerr.Fenced, "replica %d, whose log is [%d, %d) and confirmed to %d, can't go on from the log here, [%d, %d): %v",
				h.self.Member.Replica, h.First, h.End, h.Confirm, w.LogMin, w.LogEnd, w.Verdict)
		}
	}
	return refuse(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, mqerr.New(mqerr.Invalid, "more than %d pages of epochs", pagesMax))
}

// pagesMax bounds the Hellos of one stream: half a million epochs.
const pagesMax = 8192

func reasonFor(err error) replicationv1.CloseReason {
	switch mqerr.KindOf(err) {
	case mqerr.Corrupt:
		return replicationv1.CloseReason_CLOSE_REASON_DAMAGED
	case mqerr.Fenced, mqerr.Draining:
		return replicationv1.CloseReason_CLOSE_REASON_STALE_EPOCH
	}
	return replicationv1.CloseReason_CLOSE_REASON_REFUSED
}

// next waits for a message of the handshake, and for the epoch to begin.
func (l *Leader) next(ctx context.Context, in <-chan *replicationv1.ReplicateRequest) (*replicationv1.ReplicateRequest, error) {
	timer := time.NewTimer(handshakeTimeout)
	defer timer.Stop()
	var m *replicationv1.ReplicateRequest
	for ready, begun := false, l.begun; !ready || m == nil; {
		var hear <-chan *replicationv1.ReplicateRequest
		if m == nil {
			hear = in
		}
		select {
		case <-begun:
			ready, begun = true, nil
		case got, ok := <-hear:
			if !ok {
				return nil, mqerr.New(mqerr.Unavailable, "the stream broke within the handshake")
			}
			m = got
		case <-l.ended:
			return nil, l.why
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, mqerr.New(mqerr.Timeout, "no hello within %v, or the epoch has not begun", handshakeTimeout)
		}
	}
	return m, nil
}

// judge refuses who does not belong here.
func (l *Leader) judge(h *hello) (replicationv1.CloseReason, error) {
	const refused = replicationv1.CloseReason_CLOSE_REASON_REFUSED
	switch {
	case h.version != Version:
		return refused, mqerr.New(mqerr.Unsupported, "replica %d (release %s) speaks version %d of replication, the master (release %s) speaks version %d: run the same release on both",
			h.self.Member.Replica, h.self.Release, h.version, l.o.Release, Version)
	case h.self.ClusterID != l.o.ClusterID || h.self.Shard != l.o.Shard:
		return refused, mqerr.New(mqerr.Invalid, "a replica of cluster %q, broker group %d came to the master of cluster %q, broker group %d: check the addresses",
			h.self.ClusterID, h.self.Shard, l.o.ClusterID, l.o.Shard)
	case h.epoch > l.epoch:
		l.higher(h.epoch)
		return replicationv1.CloseReason_CLOSE_REASON_NOT_MASTER, mqerr.New(mqerr.NotLeader, "epoch %d is over: replica %d has seen epoch %d", l.epoch, h.self.Member.Replica, h.epoch)
	}
	return 0, nil
}

// welcome compares the logs and, if they can go on together, opens a session.
func (l *Leader) welcome(stream serverStream, h *hello) (*session, follower.Welcome, error) {
	w := follower.Welcome{Epoch: l.epoch, Master: l.o.Member}
	var fault error
	if !l.ask(func() { fault = l.compare(h, &w) }) {
		return nil, w, l.why
	}
	if fault != nil {
		return nil, w, fault
	}
	if w.Verdict == replica.Resume && h.Tail.Size > 0 {
		if err := l.checkTail(h, &w); err != nil {
			return nil, w, err
		}
	}
	if w.Verdict != replica.Resume && w.Verdict != replica.Truncate {
		return nil, w, nil
	}
	var s *session
	ok := l.ask(func() {
		var id, old quorum.Session
		if id, old, fault = l.core.Open(l.now(), h.self.Member, h.learner); fault != nil {
			return
		}
		for _, o := range *l.sessions.Load() {
			if o.id == old {
				o.end(l.bye(replicationv1.CloseReason_CLOSE_REASON_SUPERSEDED, errSuperseded), errSuperseded)
			}
		}
		s = l.newSession(stream, h.self.Member, id, w.At)
		l.add(s)
	})
	switch {
	case !ok:
		return nil, w, l.why
	case fault != nil:
		return nil, w, fault
	}
	w.Session = s.id
	return s, w, nil
}

// compare fills in the verdict. It runs on the goroutine of Run.
func (l *Leader) compare(h *hello, w *follower.Welcome) error {
	log, x := l.o.CommitLog, l.index
	if end := log.Written(); end > x.End() {
		if err := x.Append(l.epoch, x.End(), end); err != nil {
			return err
		}
	}
	if first := log.First(); first > x.First() {
		if err := x.DropBelow(first); err != nil {
			return err
		}
	}
	answer, err := x.Reconcile(&h.Hello)
	w.Answer, w.Confirm, w.LogMin, w.LogEnd = answer, l.Confirmed(), x.First(), x.End()
	return err
}

// checkTail compares the last record of a follower that would go on at its end.
func (l *Leader) checkTail(h *hello, w *follower.Welcome) error {
	own, _, err := headerAt(l.o.CommitLog, h.Tail.Pos, make([]byte, record.HeaderSize))
	if err == nil {
		w.Answer = w.CheckTail(h.Tail, replica.Tail{Pos: own.Pos, Size: own.Size, CRC: own.CRC})
		return nil
	}
	// Another record goes over that place, or ours is damaged.
	stands, e := l.o.CommitLog.Stands(commitlog.Tail{End: h.End, Last: commitlog.Last{Pos: h.Tail.Pos, CRC: h.Tail.CRC}})
	if e == nil && stands == commitlog.Replaced {
		if h.Tail.Pos >= w.LogMin {
			w.Answer = w.CheckTail(h.Tail, replica.Tail{})
		}
		return nil
	}
	l.o.Damaged(err)
	return err
}
