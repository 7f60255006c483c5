package raft

import (
	"io"
	"slices"
	"sync"

	hraft "github.com/hashicorp/raft"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// machine is the library's view of controller/state. After an entry that this release can't read it
// stands still: it applies nothing more and makes no snapshot.
type machine struct {
	release  string
	applied  func(state.Version, []state.Event)
	restored func(*state.State)
	fail     func(error)
	learn    func(*state.State) // called when the table of controllers or the cluster's id changed

	mu    sync.RWMutex // guards state and err; held for writing by Apply and Restore only
	state *state.State
	err   error
}

// Apply decodes and applies one command. It answers with a state.Result, or an error.
func (m *machine) Apply(l *hraft.Log) any {
	r, events, err := m.apply(l)
	if err != nil {
		return err
	}
	m.applied(state.Version(l.Index), events)
	return r
}

func (m *machine) apply(l *hraft.Log) (state.Result, []state.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return state.Result{}, nil, m.err
	}
	c, err := state.DecodeCommand(l.Data)
	if err != nil {
		m.err = mqerr.New(mqerr.KindOf(err), "entry %d of the controller's log: %w", l.Index, err)
		m.fail(m.err)
		return state.Result{}, nil, m.err
	}
	before := m.state.Cluster()
	r, events := m.state.Apply(state.Version(l.Index), c)
	if m.learn != nil && (m.state.Cluster() != before || slices.ContainsFunc(events, isMembers)) {
		m.learn(m.state)
	}
	return r, events, nil
}

func isMembers(e state.Event) bool {
	_, yes := e.(state.ControllersChanged)
	return yes
}

// Snapshot copies pointers only: commands wait for it.
func (m *machine) Snapshot() (hraft.FSMSnapshot, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.err != nil {
		return nil, m.err
	}
	return &snapshot{state: m.state.Clone(), release: m.release}, nil
}

// Restore replaces the state with a snapshot.
func (m *machine) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }() // it was only read
	s, err := state.ReadSnapshot(r)
	m.mu.Lock()
	if err != nil {
		m.err = err
		m.mu.Unlock()
		m.fail(err)
		return err
	}
	m.state = s
	if m.learn != nil {
		m.learn(s)
	}
	m.mu.Unlock()
	m.restored(s.Clone())
	return nil
}

type snapshot struct {
	state   *state.State
	release string
}

// Persist writes the snapshot.
func (s *snapshot) Persist(sink hraft.SnapshotSink) error {
	if err := s.state.WriteSnapshot(sink, s.release); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// Release has nothing to give back.
func (s *snapshot) Release() {}
