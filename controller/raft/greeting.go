package raft

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Controllers greet each other before the library's protocol begins, so that a node of another cluster,
// a directory that was emptied or removed, or a stranger never gets a vote or an entry.
//
//	0   12  magic, "perigee-raft"
//	12  1   version of the greeting and of what follows
//	13  2   length of the rest, big endian
//	15  n   one JSON object: a greeting, or the answer to it
const (
	greetingMagic   = "perigee-raft"
	greetingVersion = 1
	greetingMax     = 4096 // bytes of the JSON object
)

// greeting says who speaks.
type greeting struct {
	Release  string     `json:"release"`
	Cluster  string     `json:"cluster,omitempty"`  // empty before the cluster has its id
	Founding string     `json:"founding,omitempty"` // hash of the list with which it was founded; empty: it joins, or was alone
	ID       string     `json:"id"`
	UUID     state.UUID `json:"uuid"` // of its directory
	// Refused is set in an answer: why the other side is not wanted. Gone says that it was removed.
	Refused string `json:"refused,omitempty"`
	Gone    bool   `json:"gone,omitempty"`
}

func writeGreeting(w io.Writer, g greeting) error {
	text, err := json.Marshal(g)
	if err != nil {
		return err
	}
	b := append([]byte(greetingMagic), greetingVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	_, err = w.Write(append(b, text...))
	return err
}

// readGreeting reads one greeting and nothing behind it. Invalid: whoever speaks is no controller;
// Unsupported: one of another version.
func readGreeting(r io.Reader) (g greeting, err error) {
	var head [len(greetingMagic) + 3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return g, mqerr.New(mqerr.Invalid, "no greeting: %w", err)
	}
	if string(head[:len(greetingMagic)]) != greetingMagic {
		return g, mqerr.New(mqerr.Invalid, "whoever speaks there is no controller")
	}
	if v := head[len(greetingMagic)]; v != greetingVersion {
		return g, mqerr.New(mqerr.Unsupported, "the other controller speaks version %d of the protocol between controllers, this one version %d: run one release on all", v, greetingVersion)
	}
	n := binary.BigEndian.Uint16(head[len(greetingMagic)+1:])
	if n > greetingMax {
		return g, mqerr.New(mqerr.Invalid, "a greeting of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return g, mqerr.New(mqerr.Invalid, "half a greeting: %w", err)
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return g, mqerr.New(mqerr.Invalid, "the greeting does not decode: %w", err)
	}
	return g, nil
}

// identity is what a node knows of itself and of the others. It is kept in VERSION, so that it is known
// before the first entry is applied.
type identity struct {
	UUID     state.UUID            `json:"uuid"`               // of this directory
	Founding string                `json:"founding,omitempty"` // see greeting
	Cluster  string                `json:"cluster,omitempty"`  // see greeting
	Members  map[string]state.UUID `json:"members,omitempty"`  // directories of the controllers that announced themselves, by id
	Gone     []state.UUID          `json:"gone,omitempty"`     // directories of removed ones
}

// judge says why a node is not to be spoken to, nil if it is welcome.
func (i identity) judge(id string, g greeting) error {
	switch {
	case g.ID == id:
		return mqerr.New(mqerr.Invalid, "two controllers have the id %q: give each its own --id", id)
	case g.Cluster != "" && i.Cluster != "" && g.Cluster != i.Cluster:
		return mqerr.New(mqerr.Denied, "controller %q belongs to cluster %s, %q to %s: see whether --initial-members names the right addresses", g.ID, g.Cluster, id, i.Cluster)
	case (g.Cluster == "" || i.Cluster == "") && g.Founding != i.Founding && !newcomer(g.Cluster, g.Founding) && !newcomer(i.Cluster, i.Founding):
		return mqerr.New(mqerr.Denied, "controllers %q and %q were started with different --initial-members: start all with the same list, or add a new one with --join and `perigee cluster members add`", g.ID, id)
	case slices.Contains(i.Gone, g.UUID):
		return goneError{mqerr.New(mqerr.Denied, "controller %q was removed from the cluster", g.ID)}
	}
	if have, ok := i.Members[g.ID]; ok && have != g.UUID {
		return mqerr.New(mqerr.Denied, "controller %q has lost its directory (%v) or there are two of that id: remove the member, start it on an empty directory with --join, and add it again", g.ID, have)
	}
	return nil
}

// newcomer tells whether a node waits for any cluster to take it in.
func newcomer(cluster, founding string) bool { return cluster == "" && founding == "" }

// goneError says to a node that it was removed.
type goneError struct{ error }

func (e goneError) Unwrap() error { return e.error }

// answered turns what the other side said to a greeting into an error, nil if it agrees.
func answered(g greeting) error {
	if g.Refused == "" {
		return nil
	}
	err := mqerr.New(mqerr.Denied, "controller %q refuses this one: %s", g.ID, g.Refused)
	if g.Gone {
		return goneError{err}
	}
	return err
}

func (g greeting) String() string { return fmt.Sprintf("controller %q (release %s)", g.ID, g.Release) }
