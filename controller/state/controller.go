package state

import (
	"fmt"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Bounds of the table of controllers.
const (
	ControllersMax     = 16
	ControllerNameMax  = 64 // bytes of an id
	controllersGoneMax = 64 // directories of removed controllers that are remembered
)

// Controller is a node of the controller itself, as it announced itself. Which nodes vote is the Raft
// library's matter; this table says where brokers, proxies and the other nodes reach each of them.
type Controller struct {
	ID      string `json:"id"`                // given by the operator (--id)
	UUID    UUID   `json:"uuid"`              // identity of its data directory
	Address string `json:"address,omitempty"` // for brokers and proxies, host:port; empty: nobody can call it
	HTTP    string `json:"http,omitempty"`    // for metrics and health, host:port; empty: none
	Raft    string `json:"raft,omitempty"`    // for other controllers, host:port
	Release string `json:"release,omitempty"` // of its program
}

// PutController announces a node after its start. A directory that was removed, or another directory
// under the id of a member, is refused: it has not the votes and entries that the id stands for.
type PutController struct {
	Controller
}

func (PutController) op() string { return "put_controller" }

// Validate refuses what no state could accept.
func (c PutController) Validate() error {
	if err := CheckControllerID(c.ID); err != nil {
		return err
	}
	if c.UUID == (UUID{}) {
		return mqerr.New(mqerr.Invalid, "controller %q names no data directory", c.ID)
	}
	for _, a := range []string{c.Address, c.HTTP, c.Raft} {
		if host, port := splitAddress(a); a != "" && (host == "" || port == "" || len(a) > 300) {
			return mqerr.New(mqerr.Invalid, "controller %q: %q is not host:port", c.ID, a)
		}
	}
	return nil
}

// CheckControllerID refuses an id that cannot be one.
func CheckControllerID(id string) error {
	if id == "" || len(id) > ControllerNameMax {
		return mqerr.New(mqerr.Invalid, "the id of a controller has 1 to %d characters, %q has %d", ControllerNameMax, id, len(id))
	}
	for _, r := range id {
		if r <= ' ' || r == '=' || r == ',' || r > '~' {
			return mqerr.New(mqerr.Invalid, "controller %q: an id has letters, digits and signs without ',', '=' and spaces", id)
		}
	}
	return nil
}

func (c PutController) apply(s *State, _ Version) (Result, []Event) {
	if err := c.Validate(); err != nil {
		return Result{Err: err}, nil
	}
	if slices.Contains(s.gone, c.UUID) {
		return refuse(mqerr.Denied, "controller %q was removed from the cluster with this data directory: start it with an empty one and --join, and add it again", c.ID)
	}
	for id, other := range s.controllers {
		if other.UUID == c.UUID && id != c.ID {
			return refuse(mqerr.Exists, "this data directory is that of controller %q: it can't start as %q", id, c.ID)
		}
	}
	old, ok := s.controllers[c.ID]
	switch {
	case ok && old == c.Controller:
		return Result{}, nil
	case ok && old.UUID != c.UUID:
		return refuse(mqerr.Exists, "controller %q of this cluster has another data directory (%v): start it there, or remove the member before a new directory takes its place", c.ID, old.UUID)
	case !ok && len(s.controllers) >= ControllersMax:
		return refuse(mqerr.Exhausted, "the cluster has %d controllers, the most that are allowed", ControllersMax)
	}
	s.controllers[c.ID] = c.Controller
	return Result{Changed: true}, []Event{ControllersChanged{}}
}

// RemoveController forgets a node and remembers that its directory must not come back.
type RemoveController struct {
	ID string `json:"id"`
}

func (RemoveController) op() string { return "remove_controller" }

func (c RemoveController) apply(s *State, _ Version) (Result, []Event) {
	old, ok := s.controllers[c.ID]
	if !ok {
		return Result{}, nil
	}
	delete(s.controllers, c.ID)
	s.gone = append(slices.Clone(s.gone), old.UUID)
	s.gone = s.gone[max(0, len(s.gone)-controllersGoneMax):]
	return Result{Changed: true}, []Event{ControllersChanged{}}
}

// Controllers returns the announced nodes by id.
func (s *State) Controllers() []Controller { return sorted(s.controllers) }

// Controller returns an announced node; ok is false if there is none of that id.
func (s *State) Controller(id string) (c Controller, ok bool) {
	c, ok = s.controllers[id]
	return c, ok
}

// ControllersGone returns the directories of the controllers that were removed, the latest last. They must
// not be changed.
func (s *State) ControllersGone() []UUID { return s.gone }

// ControllerGone reports whether a directory belongs to a node that was removed.
func (s *State) ControllerGone(id UUID) bool { return slices.Contains(s.gone, id) }

func (s *State) checkControllers() error {
	if len(s.controllers) > ControllersMax || len(s.gone) > controllersGoneMax {
		return fmt.Errorf("there are %d controllers, and %d that are gone", len(s.controllers), len(s.gone))
	}
	for id, c := range s.controllers {
		if c.ID != id || (PutController{c}).Validate() != nil || slices.Contains(s.gone, c.UUID) {
			return fmt.Errorf("controller %q: wrong id or address, or it is gone", id)
		}
	}
	return nil
}
