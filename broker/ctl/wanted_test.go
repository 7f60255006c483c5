package ctl

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func (f *fake) EnsureTopic(_ context.Context, r *controllerv1.EnsureTopicRequest) (*controllerv1.EnsureTopicResponse, error) {
	f.ensured <- r
	if r.GetName() == "%DLQ%no" {
		return nil, mqerr.New(mqerr.NotLeader, "not now")
	}
	return &controllerv1.EnsureTopicResponse{}, nil
}

// TestWanted: what the broker wants is asked for, once however often it was said; a refusal ends nothing.
func TestWanted(t *testing.T) {
	f, c := start(t)
	w := NewWanted()
	w.Want("%DLQ%a")
	w.Want("%DLQ%a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx, c, 5) }()
	r := next(t, f.ensured)
	require.Equal(t, []any{"%DLQ%a", uint32(5)}, []any{r.GetName(), r.GetShard()})
	w.Want("%DLQ%no")
	require.Equal(t, "%DLQ%no", next(t, f.ensured).GetName())
	w.Want("%TXN%t")
	require.Equal(t, "%TXN%t", next(t, f.ensured).GetName())
	cancel()
	<-done
	require.Empty(t, f.ensured)
}
