package state

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// From is where a new group begins; the numbers are those of perigee.controller.v1.StartFrom.
type From uint8

// Beginnings.
const (
	FromUnset From = 0 // keep, or FromFirst
	FromFirst From = 1
	FromLast  From = 2
	FromTime  From = 3
)

// Bounds on a group's retry policy.
const (
	MaxAttemptsDefault = 17
	MaxAttemptsMax     = 10_000
	InFlightMax        = 1_000_000_000
	BackoffMax         = 64                 // delays in the list
	BackoffMaxMS       = 40 * 24 * 3600_000 // the longest delay
)

// Group is the definition of a consumer group.
type Group struct {
	ID          GroupID `json:"id"`
	Name        string  `json:"name"`
	Ordered     bool    `json:"ordered,omitempty"`
	MaxAttempts int     `json:"max_attempts"` // deliveries of a message, at least 1
	From        From    `json:"from"`         // never FromUnset
	FromMS      int64   `json:"from_ms,omitempty"`
	LiteTopic   string  `json:"lite_topic,omitempty"`
	BackoffMS   []int64 `json:"backoff_ms,omitempty"` // empty: the default list, or Exponential
	Exponential *Growth `json:"exponential,omitempty"`
	Version     Version `json:"version"` // of the last change
	InFlight
	Created   Version `json:"created"`
	CreatedMS int64   `json:"created_ms"` // ms since 1970
}

// InFlight bounds what each broker leases to a group at most, and to one client of it. 0: as the broker is set.
type InFlight struct {
	MaxInFlight       int64 `json:"max_in_flight,omitempty"`
	MaxInFlightClient int64 `json:"max_in_flight_client,omitempty"`
}

// PutGroup creates or changes a group. Unset fields keep what is there, or mean the default.
type PutGroup struct {
	Name              string  `json:"name"`
	Ordered           *bool   `json:"ordered,omitempty"`
	MaxAttempts       *int    `json:"max_attempts,omitempty"`
	From              From    `json:"from,omitempty"`
	FromMS            int64   `json:"from_ms,omitempty"`
	LiteTopic         *string `json:"lite_topic,omitempty"`
	BackoffMS         []int64 `json:"backoff_ms,omitempty"`
	Exponential       *Growth `json:"exponential,omitempty"`
	MaxInFlight       *int64  `json:"max_in_flight,omitempty"`
	MaxInFlightClient *int64  `json:"max_in_flight_client,omitempty"`
	Mode              Mode    `json:"mode,omitempty"`
	// Most is how many groups there may be for one to be created; 0: GroupsMax.
	Most  int   `json:"most,omitempty"`
	NowMS int64 `json:"now_ms"`
}

func (PutGroup) op() string { return "put_group" }

// Validate refuses what no state could accept.
func (c PutGroup) Validate() error {
	if err := CheckGroupName(c.Name); err != nil {
		return err
	}
	if c.LiteTopic != nil && *c.LiteTopic != "" {
		if err := CheckTopicName(*c.LiteTopic); err != nil {
			return err
		}
	}
	much := func(n *int64) bool { return n != nil && (*n < 0 || *n > InFlightMax) }
	bad := func(ms int64) bool { return ms < 0 || ms > BackoffMaxMS }
	switch {
	case c.Mode > Ensure:
		return mqerr.New(mqerr.Invalid, "group %q: unknown mode %d", c.Name, c.Mode)
	case c.MaxAttempts != nil && (*c.MaxAttempts < 1 || *c.MaxAttempts > MaxAttemptsMax):
		return mqerr.New(mqerr.Invalid, "group %q: %d attempts asked for, 1 to %d are possible", c.Name, *c.MaxAttempts, MaxAttemptsMax)
	case much(c.MaxInFlight) || much(c.MaxInFlightClient):
		return mqerr.New(mqerr.Invalid, "group %q: messages in flight are bounded by 1 to %d, or 0 for what brokers are set to", c.Name, InFlightMax)
	case c.From > FromTime:
		return mqerr.New(mqerr.Invalid, "group %q: unknown start %d", c.Name, c.From)
	case c.FromMS < 0 || c.From != FromTime && c.FromMS != 0:
		return mqerr.New(mqerr.Invalid, "group %q: a start time belongs to the start from a time, and is not negative", c.Name)
	case len(c.BackoffMS) > BackoffMax || slices.ContainsFunc(c.BackoffMS, bad):
		return mqerr.New(mqerr.Invalid, "group %q: the retry delays must be at most %d, of 0 to %d ms", c.Name, BackoffMax, int64(BackoffMaxMS))
	}
	if c.Exponential != nil {
		return c.Exponential.validate(c.Name, len(c.BackoffMS) > 0)
	}
	return nil
}

func (c PutGroup) apply(s *State, index Version) (Result, []Event) {
	if err := c.Validate(); err != nil {
		return Result{Err: err}, nil
	}
	have := s.Group(c.Name)
	switch {
	case have == nil && c.Mode == Update:
		return refuse(mqerr.GroupNotFound, "group %q does not exist", c.Name)
	case have == nil:
		return c.create(s, index)
	case c.Mode == Ensure:
		return Result{Group: have}, nil
	}
	next := c.over(*have)
	sameStart := c.From == FromUnset || c.From == have.From && c.FromMS == have.FromMS
	switch {
	case next.equal(have) && sameStart:
		return Result{Group: have}, nil
	case c.Mode == Create:
		return refuse(mqerr.Exists, "group %q exists and differs (ordered %v, %d attempts): update it instead", c.Name, have.Ordered, have.MaxAttempts)
	case !sameStart:
		return refuse(mqerr.Invalid, "group %q: where a group begins is fixed when it is created; reset its progress or make a new group", c.Name)
	}
	next.Version = index
	s.groups[have.ID] = &next
	s.definitions = index
	return Result{Group: &next, Changed: true}, []Event{GroupPut{&next}}
}

func (c PutGroup) create(s *State, index Version) (Result, []Event) {
	if err := room("group", c.Name, len(s.groups), c.Most, GroupsMax); err != nil {
		return Result{Err: err}, nil
	}
	g := c.over(Group{
		ID: s.nextGroup, Name: c.Name, MaxAttempts: MaxAttemptsDefault, From: FromFirst,
		Version: index, Created: index, CreatedMS: c.NowMS,
	})
	if c.From != FromUnset {
		g.From, g.FromMS = c.From, c.FromMS
	}
	s.nextGroup++
	s.groups[g.ID], s.groupNames[g.Name] = &g, g.ID
	s.definitions = index
	return Result{Group: &g, Created: true}, []Event{GroupPut{&g}}
}

// over returns g with the changeable fields that c states.
func (c PutGroup) over(g Group) Group {
	if c.Ordered != nil {
		g.Ordered = *c.Ordered
	}
	if c.MaxAttempts != nil {
		g.MaxAttempts = *c.MaxAttempts
	}
	if c.MaxInFlight != nil {
		g.MaxInFlight = *c.MaxInFlight
	}
	if c.MaxInFlightClient != nil {
		g.MaxInFlightClient = *c.MaxInFlightClient
	}
	if c.LiteTopic != nil {
		g.LiteTopic = *c.LiteTopic
	}
	if len(c.BackoffMS) > 0 {
		g.BackoffMS, g.Exponential = slices.Clone(c.BackoffMS), nil
	}
	if c.Exponential != nil {
		g.BackoffMS, g.Exponential = nil, new(*c.Exponential)
	}
	return g
}

func (g *Group) equal(o *Group) bool {
	return g.Ordered == o.Ordered && g.MaxAttempts == o.MaxAttempts && g.LiteTopic == o.LiteTopic && g.InFlight == o.InFlight && slices.Equal(g.BackoffMS, o.BackoffMS) && g.Exponential.equal(o.Exponential)
}

// DeleteGroup deletes a group. Its id is never used again.
type DeleteGroup struct {
	Name string `json:"name"`
}

func (DeleteGroup) op() string { return "delete_group" }

func (c DeleteGroup) apply(s *State, index Version) (Result, []Event) {
	g := s.Group(c.Name)
	if g == nil {
		return refuse(mqerr.GroupNotFound, "group %q does not exist", c.Name)
	}
	delete(s.groups, g.ID)
	delete(s.groupNames, g.Name)
	s.definitions = index
	return Result{Group: g, Changed: true}, []Event{GroupDeleted{Group: g, Version: index}}
}
