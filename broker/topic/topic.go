// Package topic is the broker's table of topics: a view of the META records of its log.
package topic

import (
	"encoding/json"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Type is what a topic accepts; the numbers are those of perigee.controller.v1.TopicType.
type Type uint8

// Types that the broker does not treat like all others.
const (
	Lite     Type = 5 // all messages are in lite topics
	Priority Type = 6 // the queues are levels
)

// Flush is when a message of a topic counts as stored.
type Flush uint8

// Flush policies.
const (
	FlushDefault Flush = 0 // the broker's own
	FlushSync    Flush = 1 // after fdatasync
	FlushAsync   Flush = 2 // after the write; fdatasync follows
)

// Definition is a topic as far as one broker group serves it. Its JSON form is the value of a META
// record (docs/format/record.md): fields are only added.
type Definition struct {
	ID     record.TopicID `json:"id"`
	Name   string         `json:"name"`
	Type   Type           `json:"type"`
	Queues int            `json:"queues"` // in this broker group, at least 1
	Flush  Flush          `json:"flush,omitempty"`
	Limits Limits         `json:"limits,omitzero"`
	// Layout is the version of the list of queues that message groups are spread over, 0 for the first.
	Layout uint64 `json:"layout,omitempty"`
	// Growing names a growth, 0 for none: messages with a message group are refused.
	Growing   uint64 `json:"growing,omitempty"`
	Version   uint64 `json:"version"` // the controller's version of this definition
	CreatedMS int64  `json:"created_ms"`
}

// Limits are what a topic states instead of the broker's own settings, times in ms. 0 means the setting.
type Limits struct {
	CheckAfterMS    int64 `json:"check_after_ms,omitempty"`      // until a transaction is checked first, if its sender has not said
	CheckIntervalMS int64 `json:"check_interval_ms,omitempty"`   // between two checks
	CheckLimit      int64 `json:"check_limit,omitempty"`         // checks before a transaction is given up
	DuplicatesMS    int64 `json:"duplicate_window_ms,omitempty"` // how long a message sent again is recognised; below 0: not at all
	LiteExpiryMS    int64 `json:"lite_expiry_ms,omitempty"`      // from the last message of a lite topic to its end
}

// Table holds the topics of a broker. It is not safe for concurrent use: the engine owns it.
type Table struct {
	byID    map[record.TopicID]*Definition
	windows windows
}

// New returns an empty table.
func New() *Table { return &Table{byID: map[record.TopicID]*Definition{}, windows: windows{}} }

// Get returns a topic, nil if it does not exist.
func (t *Table) Get(id record.TopicID) *Definition { return t.byID[id] }

// All returns the topics by id.
func (t *Table) All() []*Definition {
	all := make([]*Definition, 0, len(t.byID))
	for _, d := range t.byID {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *Definition) int { return int(int64(a.ID) - int64(b.ID)) })
	return all
}

// Len is the number of topics.
func (t *Table) Len() int { return len(t.byID) }

// Apply takes a META record about a topic.
func (t *Table) Apply(m *record.Meta) error {
	id := record.TopicID(m.ID)
	if m.Deleted {
		t.windows.change(t.byID[id], nil)
		delete(t.byID, id)
		return nil
	}
	d := new(Definition)
	if err := json.Unmarshal(m.Value, d); err != nil {
		return mqerr.New(mqerr.Corrupt, "definition of topic %d (%q): %w", m.ID, m.Name, err)
	}
	if d.ID != id || d.Queues < 1 {
		return mqerr.New(mqerr.Corrupt, "definition of topic %d (%q) has id %d and %d queues", m.ID, m.Name, d.ID, d.Queues)
	}
	t.windows.change(t.byID[id], d)
	t.byID[id] = d
	return nil
}

// Meta is the record that says d.
func (d *Definition) Meta() (record.Meta, error) {
	value, err := json.Marshal(d)
	return record.Meta{Kind: record.MetaTopic, Version: d.Version, ID: uint32(d.ID), Name: []byte(d.Name), Value: value}, err
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
		return mqerr.New(mqerr.Corrupt, "topic table: %w", err)
	}
	t.byID, t.windows = make(map[record.TopicID]*Definition, len(all)), windows{}
	for _, d := range all {
		if d == nil || d.Queues < 1 {
			return mqerr.New(mqerr.Corrupt, "topic table: a topic without queues")
		}
		t.windows.change(t.byID[d.ID], d)
		t.byID[d.ID] = d
	}
	return nil
}
