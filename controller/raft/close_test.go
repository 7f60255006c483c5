package raft

import (
	"runtime"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"
)

// TestCloseAtElection: a node that is closed while it becomes the leader ends. What the library has not answered when it shuts down it
// never answers.
func TestCloseAtElection(t *testing.T) {
	for i := range 120 {
		n, err := open(t, Options{Dir: t.TempDir(), Election: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for n.raft.State() != hraft.Leader {
			runtime.Gosched()
		}
		for range i * 20 { // somewhere in its first barrier
			runtime.Gosched()
		}
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it does not end")
		}
	}
}
