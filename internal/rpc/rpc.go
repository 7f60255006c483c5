// Package rpc is how failures cross the internal gRPC services: the only table between mqerr kinds
// and gRPC codes, and the interceptors that apply it on both sides.
//
// A server's handlers return plain errors; its interceptor sends them as a status with an
// ErrorDetail that holds the exact kind. The client's interceptor turns the status back, so that a
// remote failure branches like a local one. An Internal error loses its text on the wire: the server
// has logged it.
package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// kindCodes has the gRPC code of every kind. Kinds that share a code are told apart by the detail.
var kindCodes = map[mqerr.Kind]codes.Code{
	mqerr.Internal:          codes.Internal,
	mqerr.Invalid:           codes.InvalidArgument,
	mqerr.TopicNotFound:     codes.NotFound,
	mqerr.GroupNotFound:     codes.NotFound,
	mqerr.NotFound:          codes.NotFound,
	mqerr.HandleInvalid:     codes.InvalidArgument,
	mqerr.Exists:            codes.AlreadyExists,
	mqerr.NotLeader:         codes.FailedPrecondition,
	mqerr.Fenced:            codes.FailedPrecondition,
	mqerr.Draining:          codes.Unavailable,
	mqerr.NotEnoughReplicas: codes.Unavailable,
	mqerr.DiskFull:          codes.ResourceExhausted,
	mqerr.Exhausted:         codes.ResourceExhausted,
	mqerr.Unavailable:       codes.Unavailable,
	mqerr.UnknownOutcome:    codes.Aborted,
	mqerr.Timeout:           codes.DeadlineExceeded,
	mqerr.Cancelled:         codes.Canceled,
	mqerr.Corrupt:           codes.DataLoss,
	mqerr.Unsupported:       codes.Unimplemented,
	mqerr.Denied:            codes.PermissionDenied,
	mqerr.QuotaExceeded:     codes.ResourceExhausted,
}

// bareKinds says what a status without a detail means: it comes from gRPC itself, not from a handler
// of ours. A deadline that passed on the way leaves the outcome open.
var bareKinds = map[codes.Code]mqerr.Kind{
	codes.Canceled:           mqerr.Cancelled,
	codes.InvalidArgument:    mqerr.Invalid,
	codes.DeadlineExceeded:   mqerr.UnknownOutcome,
	codes.NotFound:           mqerr.NotFound,
	codes.AlreadyExists:      mqerr.Exists,
	codes.PermissionDenied:   mqerr.Denied,
	codes.ResourceExhausted:  mqerr.Exhausted,
	codes.FailedPrecondition: mqerr.Invalid,
	codes.Aborted:            mqerr.UnknownOutcome,
	codes.OutOfRange:         mqerr.Invalid,
	codes.Unimplemented:      mqerr.Unsupported,
	codes.Unavailable:        mqerr.Unavailable,
	codes.DataLoss:           mqerr.Corrupt,
	codes.Unauthenticated:    mqerr.Denied,
}

// Code returns the gRPC code of a kind.
func Code(k mqerr.Kind) codes.Code {
	if c, ok := kindCodes[k]; ok {
		return c
	}
	return codes.Internal
}

// ToStatus turns an error of a handler into a gRPC status error with an ErrorDetail. A status error
// passes as it is; nil stays nil. A bare context error keeps its meaning.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*mqerr.Error](err); !ok {
		switch {
		case errors.Is(err, context.Canceled):
			return withKind(mqerr.Cancelled, "cancelled")
		case errors.Is(err, context.DeadlineExceeded):
			return withKind(mqerr.UnknownOutcome, "the deadline passed")
		}
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	k := mqerr.KindOf(err)
	if k == mqerr.Internal {
		return withKind(k, "internal error; the server's log has the cause")
	}
	return withDetail(&controllerv1.ErrorDetail{Kind: uint32(k), Leader: LeaderOf(err)}, err.Error())
}

func withKind(k mqerr.Kind, text string) error {
	return withDetail(&controllerv1.ErrorDetail{Kind: uint32(k)}, text)
}

func withDetail(detail *controllerv1.ErrorDetail, text string) error {
	k := mqerr.Kind(detail.GetKind())
	st, err := status.New(Code(k), text).WithDetails(detail)
	if err != nil {
		return status.Error(Code(k), text)
	}
	return st.Err()
}

// FromStatus turns an error of a gRPC call into an *mqerr.Error with the kind that the server gave.
// Errors that are no statuses pass as they are; nil stays nil. Unavailable without a detail means that
// the connection failed: the call may have been delivered, so repeat only what may be repeated.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*mqerr.Error](err); ok {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		if detail, ok := d.(*controllerv1.ErrorDetail); ok {
			e := &mqerr.Error{Kind: knownKind(detail.GetKind()), Text: st.Message(), Cause: err}
			if detail.GetLeader() != "" {
				return ElsewhereError{Err: e, Leader: detail.GetLeader()}
			}
			return e
		}
	}
	return &mqerr.Error{Kind: bareKinds[st.Code()], Text: st.Message(), Cause: err}
}

// ElsewhereError is a refusal that says where the leader is.
type ElsewhereError struct {
	Err    *mqerr.Error
	Leader string // host:port
}

// Error returns the text of the refusal.
func (e ElsewhereError) Error() string { return e.Err.Error() }

// Unwrap returns the refusal.
func (e ElsewhereError) Unwrap() error { return e.Err }

// LeaderOf returns the address of the leader that a refusal names, empty if it names none.
func LeaderOf(err error) string {
	if e, ok := errors.AsType[ElsewhereError](err); ok {
		return e.Leader
	}
	return ""
}

// Answered reports whether a status was made by a handler of ours. Another one comes from the connection: if
// the call was sent, its outcome is open.
func Answered(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if _, ok := d.(*controllerv1.ErrorDetail); ok {
			return true
		}
	}
	return false
}

// knownKind maps kinds that a newer release may send to Internal.
func knownKind(n uint32) mqerr.Kind {
	if n < uint32(len(mqerr.Kinds())) {
		return mqerr.Kind(n)
	}
	return mqerr.Internal
}
