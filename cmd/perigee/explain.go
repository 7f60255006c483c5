package main

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// verdict is what a kind of failure is for somebody at a command line.
type verdict struct {
	code   int
	advice string // what to do, "" where the text of the failure says it
}

// verdicts has every kind that a service of ours may answer with.
var verdicts = map[mqerr.Kind]verdict{
	mqerr.Internal:          {code: exitFailed},
	mqerr.Invalid:           {code: exitRefused},
	mqerr.TopicNotFound:     {code: exitRefused},
	mqerr.GroupNotFound:     {code: exitRefused},
	mqerr.NotFound:          {code: exitRefused},
	mqerr.HandleInvalid:     {code: exitRefused},
	mqerr.Exists:            {code: exitRefused},
	mqerr.NotLeader:         {code: exitRefused, advice: "nothing was changed: try again in a moment"},
	mqerr.Fenced:            {code: exitRefused, advice: "nothing was changed: try again in a moment"},
	mqerr.Draining:          {code: exitUnreachable, advice: "nothing was changed: try again, or through another proxy"},
	mqerr.NotEnoughReplicas: {code: exitRefused, advice: "nothing was changed: bring back the brokers that are gone, then try again"},
	mqerr.DiskFull:          {code: exitRefused, advice: "nothing was changed: make room on the broker's disk, then try again"},
	mqerr.Exhausted:         {code: exitRefused, advice: "nothing was changed: try again after a pause"},
	mqerr.Unavailable:       {code: exitUnreachable},
	mqerr.UnknownOutcome:    {code: exitFailed, advice: "it may have happened or not: look before you do it again"},
	mqerr.Timeout:           {code: exitUnreachable},
	mqerr.Cancelled:         {code: exitFailed},
	mqerr.Corrupt:           {code: exitFailed, advice: "stop the broker and run perigee debug check on its directory"},
	mqerr.Unsupported:       {code: exitRefused},
	mqerr.Denied:            {code: exitRefused},
	mqerr.QuotaExceeded:     {code: exitRefused},
}

// explain turns an error of a call into one with an exit code and something to do.
func (s clientSettings) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, coded := errors.AsType[exitError](err); coded {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	if len(st.Details()) == 0 {
		return s.explainBare(st)
	}
	// A handler of ours said it.
	v, text := verdicts[mqerr.KindOf(rpc.FromStatus(err))], st.Message()
	if v.advice != "" {
		text += "; " + v.advice
	}
	return exitError{code: v.code, err: errors.New(text)}
}

// explainBare explains a status that gRPC itself made: the call did not reach a handler of ours, or no
// answer came back.
func (s clientSettings) explainBare(st *status.Status) error {
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return exitError{code: exitUnreachable, err: fmt.Errorf("%s does not answer (%s): is it running, and is --server its gRPC address?", s.Server, st.Message())}
	case codes.Unimplemented:
		return exitError{code: exitUnreachable, err: fmt.Errorf("%s is no Perigee proxy: it does not know this service", s.Server)}
	case codes.Canceled:
		return errInterrupted
	}
	return exitError{code: exitRefused, err: fmt.Errorf("%s says %s: %s", s.Server, st.Code(), st.Message())}
}
