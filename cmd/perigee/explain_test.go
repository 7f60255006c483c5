package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

var at = clientSettings{Server: "example:8081"}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	coded, ok := errors.AsType[exitError](err)
	require.True(t, ok, "%v", err)
	return coded.code
}

// TestEveryKindIsExplained: one sentence, the server's own, and what to do where it does not say so.
func TestEveryKindIsExplained(t *testing.T) {
	for _, kind := range mqerr.Kinds() {
		_, known := verdicts[kind]
		require.True(t, known, "kind %s has no verdict", kind)
		err := at.explain(rpc.ToStatus(mqerr.New(kind, "topic orders is special")))
		require.Contains(t, []int{exitFailed, exitRefused, exitUnreachable}, codeOf(t, err), kind)
		require.NotContains(t, err.Error(), "rpc error", kind)
		if kind != mqerr.Internal {
			require.Contains(t, err.Error(), "topic orders is special", kind)
		}
	}
	for kind, want := range map[mqerr.Kind]struct {
		code int
		text string
	}{
		mqerr.Internal:       {exitFailed, "internal error; the server's log has the cause"},
		mqerr.TopicNotFound:  {exitRefused, "x"},
		mqerr.Exhausted:      {exitRefused, "x; nothing was changed: try again after a pause"},
		mqerr.Unavailable:    {exitUnreachable, "x"},
		mqerr.UnknownOutcome: {exitFailed, "x; it may have happened or not: look before you do it again"},
		mqerr.Draining:       {exitUnreachable, "x; nothing was changed: try again, or through another proxy"},
	} {
		err := at.explain(rpc.ToStatus(mqerr.New(kind, "x")))
		require.Equal(t, want.code, codeOf(t, err), kind)
		require.EqualError(t, err, want.text)
	}
}

// TestBareStatuses come from gRPC, not from a handler of ours.
func TestBareStatuses(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		code int
		text string
	}{
		codes.Unavailable:       {exitUnreachable, "example:8081 does not answer (why): is it running, and is --server its gRPC address?"},
		codes.DeadlineExceeded:  {exitUnreachable, "example:8081 does not answer (why): is it running, and is --server its gRPC address?"},
		codes.Unimplemented:     {exitUnreachable, "example:8081 is no Perigee proxy: it does not know this service"},
		codes.Canceled:          {exitFailed, "interrupted"},
		codes.ResourceExhausted: {exitRefused, "example:8081 says ResourceExhausted: why"},
	} {
		err := at.explain(status.Error(code, "why"))
		require.Equal(t, want.code, codeOf(t, err), code)
		require.EqualError(t, err, want.text)
		require.Equal(t, err, at.explain(err), "explained once")
	}
	require.NoError(t, at.explain(nil))
	plain := errors.New("no status")
	require.Equal(t, plain, at.explain(plain))
}
