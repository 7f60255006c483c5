// Package mqerr is the vocabulary of failures that the tiers share.
//
// An error has a Kind: what the caller can do about it. Code branches on kinds, people read the
// text. Each tier returns plain errors of this package; the edge turns a kind into a public code
// through one table (docs/outcomes.md), and the network client between proxy and broker turns the
// wire form back, so that a remote failure branches like a local one.
package mqerr

import (
	"errors"
	"fmt"
)

// Kind says what the caller can do about a failure. Its number goes over internal wires: append
// only, never renumber.
type Kind uint8

// Kinds of errors.
const (
	Internal          Kind = iota // unclassified: our bug. The zero value, so that forgetting is safe
	Invalid                       // the request is wrong; do not retry
	TopicNotFound                 // no such topic (or it was deleted and made again under a new id)
	GroupNotFound                 // no such consumer group
	NotFound                      // something else that was asked for does not exist
	HandleInvalid                 // the receipt handle does not name the current lease of a message
	Exists                        // a thing of that name is there already and differs
	NotLeader                     // ask for the route again, then retry there; nothing was written
	Fenced                        // the request carries an epoch that is over; nothing was written
	Draining                      // this process is going away; retry elsewhere; nothing was written
	NotEnoughReplicas             // too few replicas to promise anything; nothing was written
	DiskFull                      // a watermark refuses this kind of record; nothing was written
	Exhausted                     // a bound was reached; retry after a pause; nothing was written
	Unavailable                   // the peer cannot be reached and surely did not act
	UnknownOutcome                // the request may or may not have taken effect
	Timeout                       // the deadline passed before anything was started
	Cancelled                     // the caller went away
	Corrupt                       // stored bytes fail their checksum
	Unsupported                   // this version cannot do that
	Denied                        // the principal may not do that
	QuotaExceeded                 // a quota is used up: nothing was written, and only less use of it helps
	numKinds
)

var kindNames = [numKinds]string{
	"internal", "invalid", "topic not found", "group not found", "not found", "invalid receipt handle", "exists",
	"not leader", "fenced", "draining", "not enough replicas", "disk full", "exhausted", "unavailable",
	"unknown outcome", "timeout", "cancelled", "corrupt", "unsupported", "denied", "quota exceeded",
}

// Kinds lists every kind, for tables and the tests that walk them.
func Kinds() []Kind {
	all := make([]Kind, numKinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// String returns the kind in words.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is a failure with its kind. Cause may be nil.
type Error struct {
	Kind  Kind
	Text  string
	Cause error
}

// New makes an error of kind k. The text names the thing concerned and, where there is something
// to do, what to do; %w wraps a cause.
func New(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Text: err.Error(), Cause: errors.Unwrap(err)}
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of the first Error in err's chain, Internal for any other error.
// A nil error has no kind: do not ask.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }
