package controller

import (
	"context"
	"log/slog"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/server"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

const (
	announcePause = 100 * time.Millisecond
	announceMax   = 5 * time.Second
)

// announce tells the cluster where this node is, until that is in the state. A node that joins waits here
// until it is taken in and has caught up. Then it looks from time to time whether the state still says so.
func (c *Controller) announce(ctx context.Context, srv *server.Server) {
	if c.o.RaftAddr == "" {
		return // alone for ever
	}
	wait, told := announcePause, ""
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if c.announced() {
			wait = announceMax
			continue
		}
		err := srv.AnnounceSelf(ctx, c.self())
		switch {
		case err == nil:
			wait, told = announcePause, ""
		case ctx.Err() != nil:
			return
		default:
			wait = min(2*wait, announceMax)
			if text := err.Error(); text != told && !mqerr.Is(err, mqerr.NotLeader) {
				told = text
				c.o.Log.Warn("this controller could not tell the others where it is reached: it is tried again", slog.String("error", text))
			}
		}
	}
}

// self is what this node announces.
func (c *Controller) self() *controllerv1.AnnounceRequest {
	uuid := c.node.UUID()
	return &controllerv1.AnnounceRequest{Id: c.o.ID, Uuid: uuid[:], Address: c.AdvertiseAddr(), HttpAddress: c.o.HTTPAddr, RaftAddress: c.node.Addr()}
}

// announced reports whether the state has it.
func (c *Controller) announced() (yes bool) {
	r := c.self()
	want := state.Controller{ID: r.GetId(), UUID: state.UUID(r.GetUuid()), Address: r.GetAddress(), HTTP: r.GetHttpAddress(), Raft: r.GetRaftAddress(), Release: c.o.Release}
	c.node.View(func(s *state.State) {
		have, ok := s.Controller(want.ID)
		yes = ok && have == want
	})
	return yes
}
