package server

import (
	"bytes"
	"math"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/sql92"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// check checks a receive in the order of the reference server and fills in what to ask a broker for.
func (r *receive) check() refusal {
	if no := r.pollingTime(); no.given() {
		return no
	}
	if no := checkTopic(r.req.Queue.Topic.Name); no.given() {
		return no
	}
	if no := checkGroup(r.req.Group.Name); no.given() {
		return no
	}
	if no := r.lease(); no.given() {
		return no
	}
	filter, no := r.s.filterOf(&r.req.Filter)
	r.want.Pop.Filter = filter
	r.want.Pop.Max, r.want.Pop.MaxBytes = min(max(int(r.req.BatchSize), 1), r.s.o.Limits.ReceiveBatch), r.s.o.Limits.ReceiveBytes
	return no
}

const (
	// pollMargin is how long before its caller's deadline a receive is answered: Rust has no time
	// beyond the polling time that it asks for.
	pollMargin = 500 * time.Millisecond
	// requestTimeout is what a client counts with that did not say.
	requestTimeout = 3 * time.Second
)

// pollingTime finds how long the receive may wait: as long as it says, else as its client's settings
// say, else until shortly before its deadline.
func (r *receive) pollingTime() refusal {
	l := &r.s.o.Limits
	deadline, limited := r.call.Deadline()
	left := time.Duration(math.MaxInt64)
	if limited {
		left = deadline.Sub(r.started)
	}
	poll := min(max(r.askedPoll(left), l.PollMin), l.PollMax)
	if poll > left {
		if left < l.PollMin {
			code := rmqv2.Code_ILLEGAL_POLLING_TIME
			if r.call.Header(headerVersion) < "5.0.3" { // as text: older clients do not know that code
				code = rmqv2.Code_BAD_REQUEST
			}
			return refuse(code, "the deadline is too near to wait for messages: leave at least "+l.PollMin.String())
		}
		poll = left
	}
	if limited {
		poll = min(poll, left-pollMargin)
	}
	r.until = r.started.Add(poll)
	return refusal{}
}

func (r *receive) askedPoll(left time.Duration) time.Duration {
	if asked := &r.req.LongPollingTimeout; asked.Set {
		return asked.Duration()
	}
	settings, _ := r.s.o.Clients.Settings(r.client)
	if settings.PollTimeout > 0 {
		return settings.PollTimeout // the Go client's simple consumer says it only there
	}
	if settings.RequestTimeout <= 0 {
		settings.RequestTimeout = requestTimeout
	}
	return left - settings.RequestTimeout/2
}

// lease finds how long messages are to be leased: as long as the client lives if it wants that.
func (r *receive) lease() refusal {
	if r.req.AutoRenew {
		r.want.Pop.Session = true
		return refusal{}
	}
	r.want.Pop.Invisible = r.req.InvisibleDuration.Duration()
	return r.s.checkInvisible(r.want.Pop.Invisible, r.s.o.Limits.InvisibleMin)
}

func (s *Server) checkInvisible(d, least time.Duration) refusal {
	switch most := s.o.Limits.InvisibleMax; {
	case d < least:
		return refuse(rmqv2.Code_ILLEGAL_INVISIBLE_TIME, "the invisible time is too short, the minimum is "+least.String())
	case d > most:
		return refuse(rmqv2.Code_ILLEGAL_INVISIBLE_TIME, "the invisible time is too long, the maximum is "+most.String())
	}
	return refusal{}
}

// filterBytesMax bounds a filter expression.
const filterBytesMax = 64 << 10

// filterOf reads a filter expression.
func (*Server) filterOf(f *wire.Filter) (brokerapi.Filter, refusal) {
	if no := checkFilter(f.Type, f.Expression); no.given() {
		return brokerapi.Filter{}, no
	}
	if f.Type == int32(rmqv2.FilterType_SQL) {
		return brokerapi.Filter{Kind: brokerapi.FilterSQL, SQL: string(f.Expression)}, refusal{}
	}
	if len(f.Expression) == 0 || string(f.Expression) == "*" {
		return brokerapi.Filter{}, refusal{}
	}
	filter := brokerapi.Filter{Kind: brokerapi.FilterTags}
	for part := range bytes.SplitSeq(f.Expression, []byte("||")) {
		if tag := bytes.TrimSpace(part); len(tag) > 0 {
			filter.Tags = append(filter.Tags, string(tag))
		}
	}
	return filter, refusal{}
}

// checkFilter says what is wrong with a filter expression, if anything. Every type but SQL is TAG.
func checkFilter(kind int32, expression []byte) refusal {
	switch {
	case len(expression) > filterBytesMax:
		return refuse(rmqv2.Code_ILLEGAL_FILTER_EXPRESSION, "the filter expression is longer than 64 KiB")
	case kind == int32(rmqv2.FilterType_SQL):
		if isBlank(expression) {
			return refuse(rmqv2.Code_ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty")
		}
		if _, err := sql92.Parse(string(expression)); err != nil {
			return refuse(rmqv2.Code_ILLEGAL_FILTER_EXPRESSION, "the SQL expression is wrong at "+err.Error())
		}
	case len(expression) > 0 && len(bytes.ReplaceAll(expression, []byte("||"), nil)) == 0:
		return refuse(rmqv2.Code_ILLEGAL_FILTER_EXPRESSION, "the tag expression has no tag")
	}
	return refusal{}
}
