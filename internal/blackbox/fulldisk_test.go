package blackbox

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/vfs/smalldisk"
)

// TestFullDisk fills a real disk under a load of all kinds of messages: producers are refused, consumers go
// on, changes of topics are refused, and all of it is taken again when there is space, without a restart.
// Each message that was answered OK is there once, no refused one is, also after a kill and a start.
//
//fault:space a real disk is full to the last byte under sends of all kinds => producers and changes of topics are refused with a clear answer, consumers go on, the process lives; with space everything is taken again without a restart; every acknowledged message is there once
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, marks := range map[string][]string{
		"no space left":    {"--space-low-free", "0", "--space-producers-free", "0", "--space-grow-free", "0"},
		"behind the marks": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := smalldisk.Mount(t, 160<<20)
			s := &stoppable{t: t, dir: filepath.Join(disk.Dir, "data"), grpc: freeAddr(t), http: freeAddr(t)}
			more := append([]string{"--segment-bytes", "8MiB", "--checkpoint-interval", "1s"}, marks...)
			s.start(more...)
			t.Cleanup(func() {
				if err := s.stop(); err != nil {
					t.Error(err)
				}
			})
			fullDisk(t, s, disk, more)
		})
	}
}

// fullLoad are the places of one load, by kind.
func fullLoad(t *testing.T, c *client) map[string]*place {
	return map[string]*place{
		"normal":      newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 4),
		"fifo":        newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_FIFO, 2),
		"delay":       newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_DELAY, 2),
		"transaction": newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_TRANSACTION, 2),
	}
}

// kind makes a message one of a kind.
func (p *place) kind(name, body string) *rmqv2.Message {
	m := p.message(body)
	sys := m.GetSystemProperties()
	switch name {
	case "fifo":
		sys.MessageType, sys.MessageGroup = rmqv2.MessageType_FIFO, new("g")
	case "delay":
		sys.MessageType, sys.DeliveryTimestamp = rmqv2.MessageType_DELAY, timestamppb.New(time.Now().Add(2*time.Second))
	case "transaction":
		sys.MessageType, sys.OrphanedTransactionRecoveryDuration = rmqv2.MessageType_TRANSACTION, nil
	}
	return m
}

// commit ends a transaction, which may have to wait for space.
func (p *place) commit(t *testing.T, id string) {
	until(t, time.Minute, func(ctx context.Context) bool {
		a := p.c.do(ctx, "EndTransaction", &rmqv2.EndTransactionRequest{
			Topic: resource(p.topic), MessageId: id, TransactionId: id, Resolution: rmqv2.TransactionResolution_COMMIT, Source: rmqv2.TransactionSource_SOURCE_CLIENT,
		})
		a.is(t, "OK|TOO_MANY_REQUESTS")
		return a.name() == "OK" || t.Failed()
	})
}

func fullDisk(t *testing.T, s *stoppable, disk *smalldisk.Disk, more []string) {
	c := connect(t, s.grpc)
	load := fullLoad(t, c)
	disk.Fill(24 << 20)
	var wg sync.WaitGroup
	for name, p := range load {
		wg.Go(func() {
			n := 0
			for ; !t.Failed(); n++ {
				m := p.kind(name, fmt.Sprint(n, strings.Repeat("x", 60_000)))
				a := p.send(t.Context(), c, m)
				if a.is(t, "OK|TOO_MANY_REQUESTS"); a.name() != "OK" {
					if !strings.Contains(a.status.GetMessage(), "nothing was stored") {
						t.Errorf("refused with %q", a.status.GetMessage())
					}
					break
				}
				if name == "transaction" {
					p.commit(t, m.GetSystemProperties().GetMessageId())
				}
			}
			t.Logf("%s: %d messages until the disk was full", name, n)
		})
	}
	wg.Wait()
	disk.Fill(0)
	// Smaller messages may still fit; then none does, and the level says so.
	until(t, 20*time.Second, func(ctx context.Context) bool {
		p := load["normal"]
		for range 100 {
			a := p.send(ctx, c, p.message(strings.Repeat("s", 1000)))
			if a.is(t, "OK|TOO_MANY_REQUESTS"); a.name() != "OK" {
				break
			}
		}
		return t.Failed() || dev{http: s.http}.metric(t, "perigee_space_level") >= 2
	})
	_, err := c.admin.PutGroup(t.Context(), &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: "refused"}})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(fmt.Sprint(err), "disk is full") {
		t.Errorf("a group on a full disk: %v", err)
	}
	if code := httpCode(t.Context(), "http://"+s.http+"/readyz"); code != http.StatusOK {
		t.Errorf("readyz answers %d: consumers would stay away", code)
	}
	for name, p := range load { // consumers go on
		a := p.receive(t.Context(), c, nil)
		if a.is(t, "OK"); len(a.messages) > 0 {
			p.ack(t.Context(), c, a.messages).is(t, "OK")
		} else {
			t.Errorf("%s: nothing came", name)
		}
	}
	disk.Empty()
	for name, p := range load {
		until(t, 20*time.Second, func(ctx context.Context) bool {
			m := p.kind(name, "after")
			a := p.send(ctx, c, m)
			a.is(t, "OK|TOO_MANY_REQUESTS")
			if name == "transaction" && a.name() == "OK" {
				p.commit(t, m.GetSystemProperties().GetMessageId())
			}
			return a.name() == "OK" || t.Failed()
		})
	}
	until(t, 20*time.Second, func(ctx context.Context) bool {
		_, err := c.admin.PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: "taken"}})
		return err == nil
	})
	if err := s.kill(); err != nil {
		t.Fatal(err)
	}
	s.start(more...)
	until(t, 20*time.Second, func(ctx context.Context) bool { // what was delayed has come by then
		return httpCode(ctx, "http://"+s.http+"/readyz") == http.StatusOK && dev{http: s.http}.metric(t, "rocketmq_timing_messages") == 0
	})
}
