package main

import (
	"context"
	"fmt"
	"io"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/nodes"
)

// tellMasters prints a line for every change of a broker group's master, until ctx ends.
func tellMasters(ctx context.Context, conn *nodes.Conn, w io.Writer) {
	said := map[string]string{}
	for ctx.Err() == nil {
		followMasters(ctx, conn, func(s *controllerv1.Shard) {
			if line := masterLine(s); line != said[s.GetName()] {
				said[s.GetName()] = line
				fmt.Fprintln(w, line)
			}
		})
		wait := time.NewTimer(masterPause)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// followMasters tells of every broker group that a controller shows, until the stream breaks.
func followMasters(ctx context.Context, conn *nodes.Conn, tell func(*controllerv1.Shard)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := controllerv1.NewControllerServiceClient(conn).Watch(ctx, &controllerv1.WatchRequest{Hello: &controllerv1.Hello{Version: 1, Release: version}})
	for err == nil {
		var u *controllerv1.WatchUpdate
		if u, err = st.Recv(); err == nil {
			for _, s := range u.GetShards() {
				tell(s)
			}
		}
	}
}

// masterLine is what there is to say of a broker group's master.
func masterLine(s *controllerv1.Shard) string {
	if s.GetMaster() == 0 {
		return fmt.Sprintf("broker group %s: nobody leads", s.GetName())
	}
	return fmt.Sprintf("broker group %s: replica %d leads epoch %d; in sync: %s", s.GetName(), s.GetMaster(), s.GetEpoch(), ids(s.GetSyncStateSet()))
}
