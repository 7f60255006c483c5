// Package memlog is a log of a controller in memory, for clusters without files. What it has taken is durable; Fork is
// what the next process finds.
package memlog

import (
	"encoding/binary"
	"errors"
	"maps"
	"sync"

	hraft "github.com/hashicorp/raft"
)

// Log is safe for concurrent use. It implements raft.LogStore of controller/raft.
type Log struct {
	mu          sync.Mutex
	logs        map[uint64]hraft.Log
	first, last uint64
	values      map[string][]byte
}

// New returns an empty log.
func New() *Log { return &Log{logs: map[uint64]hraft.Log{}, values: map[string][]byte{}} }

// Fork returns what the next process finds.
func (m *Log) Fork() *Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Log{logs: maps.Clone(m.logs), first: m.first, last: m.last, values: maps.Clone(m.values)}
}

// Close does nothing: the next process goes on with a fork.
func (m *Log) Close() error { return nil }

// FirstIndex is that of the first entry, 0 if there is none.
func (m *Log) FirstIndex() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first, nil
}

// LastIndex is that of the last entry, 0 if there is none.
func (m *Log) LastIndex() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, nil
}

// GetLog reads an entry.
func (m *Log) GetLog(i uint64, l *hraft.Log) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, ok := m.logs[i]
	if !ok {
		return hraft.ErrLogNotFound
	}
	*l = have
	return nil
}

// StoreLog stores an entry.
func (m *Log) StoreLog(l *hraft.Log) error { return m.StoreLogs([]*hraft.Log{l}) }

// StoreLogs stores entries.
func (m *Log) StoreLogs(logs []*hraft.Log) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range logs {
		m.logs[l.Index] = *l
		if m.first == 0 {
			m.first = l.Index
		}
		m.last = max(m.last, l.Index)
	}
	return nil
}

// DeleteRange deletes entries, both ends included.
func (m *Log) DeleteRange(from, to uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := from; i <= to; i++ {
		delete(m.logs, i)
	}
	if from <= m.first {
		m.first = to + 1
	}
	if to >= m.last {
		m.last = from - 1
	}
	if m.first > m.last {
		m.first, m.last = 0, 0
	}
	return nil
}

// errNotFound has the text that the library looks for.
var errNotFound = errors.New("not found")

// Set stores a value.
func (m *Log) Set(k, v []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[string(k)] = append([]byte(nil), v...)
	return nil
}

// Get reads a value.
func (m *Log) Get(k []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[string(k)]
	if !ok {
		return nil, errNotFound
	}
	return v, nil
}

// SetUint64 stores a number.
func (m *Log) SetUint64(k []byte, v uint64) error {
	return m.Set(k, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 reads a number.
func (m *Log) GetUint64(k []byte) (uint64, error) {
	v, err := m.Get(k)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}
