// Package group is the broker's table of consumer groups: a view of the META records of its log.
package group

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// From is where a group begins on a queue that it has not read.
type From uint8

// Beginnings.
const (
	FromFirst From = 0 // the first stored message
	FromLast  From = 1 // behind the last message stored when the group was logged
	FromTime  From = 2 // the first message stored at or after FromMS
)

// Definition is a consumer group. Its JSON form is the value of a META record
// (docs/format/record.md): fields are only added.
type Definition struct {
	ID          record.GroupID `json:"id"`
	Name        string         `json:"name"`
	Ordered     bool           `json:"ordered,omitempty"`
	MaxAttempts int            `json:"max_attempts"` // deliveries of a message, at least 1
	From        From           `json:"from,omitempty"`
	FromMS      int64          `json:"from_ms,omitempty"`
	LiteTopic   string         `json:"lite_topic,omitempty"`
	BackoffMS   []int64        `json:"backoff_ms,omitempty"` // empty: DefaultBackoff
	// MaxInFlight bounds the messages that are leased to the group here, MaxInFlightClient those of one of its
	// clients; 0: as the broker is set.
	MaxInFlight       int64  `json:"max_in_flight,omitempty"`
	MaxInFlightClient int64  `json:"max_in_flight_client,omitempty"`
	Version           uint64 `json:"version"` // the controller's version of this definition
	CreatedMS         int64  `json:"created_ms"`

	// Logged is the position of the group's first META record: FromLast begins with the first message
	// stored behind it.
	Logged record.Pos `json:"logged"`
	// LoggedMS is the store time of that record, ms since 1970.
	LoggedMS int64 `json:"logged_ms,omitempty"`
}

// InOrder reports whether the messages of each message group are handed out one delivery after the
// other. A group of lite topics always is: each lite topic is a message group.
func (d *Definition) InOrder() bool { return d.Ordered || d.LiteTopic != "" }

// DefaultBackoff is the delay after each delivery when a group states none: entry n-1 after delivery
// n, the last one from there on. Source: grpc-behaviour of RocketMQ 5, customised retry policy.
var DefaultBackoff = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute,
	8 * time.Minute, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// LastBackoff is the longest delay of the group's policy, which a message past its attempts keeps.
func (d *Definition) LastBackoff() time.Duration {
	if n := len(d.BackoffMS); n > 0 {
		return time.Duration(d.BackoffMS[n-1]) * time.Millisecond
	}
	return DefaultBackoff[len(DefaultBackoff)-1]
}

// Table holds the groups of a broker. It is not safe for concurrent use: the engine owns it.
type Table struct {
	byID   map[record.GroupID]*Definition
	logged int64 // newest LoggedMS
}

// New returns an empty table.
func New() *Table { return &Table{byID: map[record.GroupID]*Definition{}} }

// Get returns a group, nil if it does not exist.
func (t *Table) Get(id record.GroupID) *Definition { return t.byID[id] }

// All returns the groups by id.
func (t *Table) All() []*Definition {
	all := make([]*Definition, 0, len(t.byID))
	for _, d := range t.byID {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *Definition) int { return int(int64(a.ID) - int64(b.ID)) })
	return all
}

// Logged is the newest LoggedMS of all groups, 0 without groups.
func (t *Table) Logged() int64 { return t.logged }

// Each calls fn for the groups in any order. fn must not change the table.
func (t *Table) Each(fn func(*Definition)) {
	for _, d := range t.byID {
		fn(d)
	}
}

// Len is the number of groups.
func (t *Table) Len() int { return len(t.byID) }

// Apply takes a META record about a group that stands at pos and was stored at a time.
func (t *Table) Apply(pos record.Pos, at int64, m *record.Meta) error {
	id := record.GroupID(m.ID)
	if m.Deleted {
		delete(t.byID, id)
		return nil
	}
	d := new(Definition)
	if err := json.Unmarshal(m.Value, d); err != nil {
		return mqerr.New(mqerr.Corrupt, "definition of group %d (%q): %w", m.ID, m.Name, err)
	}
	if d.ID != id || d.MaxAttempts < 1 {
		return mqerr.New(mqerr.Corrupt, "definition of group %d (%q) has id %d and %d attempts", m.ID, m.Name, d.ID, d.MaxAttempts)
	}
	d.Logged, d.LoggedMS = pos, at
	if before := t.byID[id]; before != nil {
		d.Logged, d.LoggedMS = before.Logged, before.LoggedMS
	}
	t.logged = max(t.logged, d.LoggedMS)
	t.byID[id] = d
	return nil
}

// Meta is the record that says d.
func (d *Definition) Meta() (record.Meta, error) {
	said := *d
	said.Logged, said.LoggedMS = 0, 0 // the record itself says it
	value, err := json.Marshal(said)
	return record.Meta{Kind: record.MetaGroup, Version: d.Version, ID: uint32(d.ID), Name: []byte(d.Name), Value: value}, err
}

// Encode appends the table to dst: equal tables give equal bytes.
func (t *Table) Encode(dst []byte) ([]byte, error) {
	b, err := json.Marshal(t.All())
	return append(dst, b...), err
}

// Decode replaces the table with an encoded one.
func (t *Table) Decode(b []byte) error {
	var all []*Definition
	if err := json.Unmarshal(b, &all); err != nil {
		return mqerr.New(mqerr.Corrupt, "group table: %w", err)
	}
	t.byID, t.logged = make(map[record.GroupID]*Definition, len(all)), 0
	for _, d := range all {
		if d == nil || d.MaxAttempts < 1 {
			return mqerr.New(mqerr.Corrupt, "group table: a group without attempts")
		}
		t.byID[d.ID] = d
		t.logged = max(t.logged, d.LoggedMS)
	}
	return nil
}
