package brokerapi

import (
	"context"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Unsupported answers the calls of the message model that a partial Broker, such as a stand-in in a test,
// does not have. It is meant to be embedded.
type Unsupported struct{}

var errUnsupported = mqerr.New(mqerr.Unsupported, "this broker does not have that call")

// EndTxn is not supported.
func (Unsupported) EndTxn(_ *EndTxnRequest, done func(*EndTxnReply, error)) {
	done(nil, errUnsupported)
}

// Checks is not supported.
func (Unsupported) Checks(_ *ChecksRequest, done func(*ChecksReply, error)) {
	done(nil, errUnsupported)
}

// Recall is not supported.
func (Unsupported) Recall(_ *RecallRequest, done func(*RecallReply, error)) {
	done(nil, errUnsupported)
}

// Forward is not supported.
func (Unsupported) Forward(_ *ForwardRequest, done func(*ForwardReply, error)) {
	done(nil, errUnsupported)
}

// Pull is not supported.
func (Unsupported) Pull(_ *PullRequest, done func(*PullReply, error)) { done(nil, errUnsupported) }

// Producers is not supported.
func (Unsupported) Producers(context.Context, *ProducersRequest) (*ProducersReply, error) {
	return nil, errUnsupported
}

// SetOffsets is not supported.
func (Unsupported) SetOffsets(context.Context, *SetOffsetsRequest) (*SetOffsetsReply, error) {
	return nil, errUnsupported
}

// Offset is not supported.
func (Unsupported) Offset(context.Context, *OffsetRequest) (*OffsetReply, error) {
	return nil, errUnsupported
}

// Reset is not supported.
func (Unsupported) Reset(context.Context, *ResetRequest) (*ResetReply, error) {
	return nil, errUnsupported
}

// SyncLite is not supported.
func (Unsupported) SyncLite(context.Context, *SyncLiteRequest) (*SyncLiteReply, error) {
	return nil, errUnsupported
}

// LiteGone is not supported.
func (Unsupported) LiteGone(context.Context, *LiteGoneRequest) (*LiteGoneReply, error) {
	return nil, errUnsupported
}

// Redrive is not supported.
func (Unsupported) Redrive(context.Context, *RedriveRequest) (*RedriveReply, error) {
	return nil, errUnsupported
}

// Find is not supported.
func (Unsupported) Find(context.Context, *FindRequest) (*FindReply, error) {
	return nil, errUnsupported
}

// Trace is not supported.
func (Unsupported) Trace(context.Context, *TraceRequest) (*TraceReply, error) {
	return nil, errUnsupported
}

// Drain is not supported.
func (Unsupported) Drain(context.Context, *DrainRequest) (*DrainReply, error) {
	return nil, errUnsupported
}

// LiteList is not supported.
func (Unsupported) LiteList(context.Context, *LiteListRequest) (*LiteListReply, error) {
	return nil, errUnsupported
}
