package raft

import (
	"log/slog"
	"net"
	"testing"

	hclog "github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// TestNoPipelines: a pipeline of the library may stand still for ever when a node refuses an entry.
func TestNoPipelines(t *testing.T) {
	o := Options{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Listen: func(a string) (net.Listener, error) { return net.Listen("tcp", a) }}
	addr, tr, err := newTransport(o, nil, hclog.NewNullLogger())
	require.NoError(t, err)
	_, err = tr.AppendEntriesPipeline("c2", addr)
	require.ErrorIs(t, err, hraft.ErrPipelineReplicationNotSupported)
	require.NoError(t, tr.Close())
}
