package raft

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Member is a node by its id and the address of its raft port.
type Member struct {
	ID, Addr string
}

// foundingOf names a list of founders, whatever their order.
func foundingOf(members []Member) string {
	if len(members) == 0 {
		return ""
	}
	var lines []string
	for _, m := range members {
		lines = append(lines, m.ID+"="+m.Addr+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:8])
}

// identify gives a directory its number if it has none.
func (d *dir) identify(random io.Reader) error {
	if d.v.UUID != (state.UUID{}) {
		return nil
	}
	if _, err := io.ReadFull(random, d.v.UUID[:]); err != nil {
		return err
	}
	return d.write()
}

// Addr is what other nodes call this one.
func (n *Node) Addr() string { return n.addr }

// UUID is the identity of this node's directory.
func (n *Node) UUID() state.UUID { return n.identity().UUID }

func (n *Node) identity() identity {
	n.idMu.Lock()
	defer n.idMu.Unlock()
	return n.dir.v.identity
}

// greeting is what this node says of itself.
func (n *Node) greeting() greeting {
	i := n.identity()
	return greeting{Release: n.o.Release, Cluster: i.Cluster, Founding: i.Founding, ID: n.o.ID, UUID: i.UUID}
}

// judge says why a node is not to be spoken to, nil if it is welcome.
func (n *Node) judge(g greeting) error { return n.identity().judge(n.o.ID, g) }

// refused learns that another node does not speak to this one. One that was removed ends.
func (n *Node) refused(err error) {
	if _, gone := errors.AsType[goneError](err); gone && n.identity().Cluster != "" {
		n.fail(errRemoved(n.o.ID))
	}
}

func errRemoved(id string) error {
	return mqerr.New(mqerr.Denied, "controller %q was removed from its cluster: to bring it back, start it on an empty directory with --join and add it with `perigee cluster members add`", id)
}

// learn keeps what the state says about the controllers where it is known before the state is. It is
// called on the goroutine that applies commands.
func (n *Node) learn(s *state.State) {
	members := map[string]state.UUID{}
	for _, c := range s.Controllers() {
		members[c.ID] = c.UUID
	}
	gone := slices.Clone(s.ControllersGone())
	n.idMu.Lock()
	defer n.idMu.Unlock()
	v := &n.dir.v
	if slices.Contains(gone, v.UUID) {
		n.fail(errRemoved(n.o.ID))
	}
	if v.Cluster == s.Cluster() && maps.Equal(v.Members, members) && slices.Equal(v.Gone, gone) {
		return
	}
	v.Cluster, v.Members, v.Gone = s.Cluster(), members, gone
	v.Founded = true // what a node that joined must not lose from now on
	if err := n.dir.write(); err != nil {
		n.o.Log.Warn("who belongs to the cluster could not be written to the directory of this controller: it is tried again with the next change", slog.Any("error", err))
	}
}
