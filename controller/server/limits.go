package server

import (
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

// limitsOf is what a request says about limits.
func limitsOf(p *controllerv1.TopicLimits) state.LimitsChange {
	if p == nil {
		return state.LimitsChange{}
	}
	return state.LimitsChange{
		MaxDelayMS: p.MaxDelayMs, CheckAfterMS: p.CheckAfterMs, CheckIntervalMS: p.CheckIntervalMs, CheckLimit: p.CheckLimit,
		DuplicatesMS: p.DuplicateWindowMs, LiteExpiryMS: p.LiteExpiryMs,
	}
}

// limitsProto is what a topic states, nil if nothing.
func limitsProto(l state.Limits) *controllerv1.TopicLimits {
	if l == (state.Limits{}) {
		return nil
	}
	one := func(v int64) *int64 {
		if v == 0 {
			return nil
		}
		return &v
	}
	return &controllerv1.TopicLimits{
		MaxDelayMs: one(l.MaxDelayMS), CheckAfterMs: one(l.CheckAfterMS), CheckIntervalMs: one(l.CheckIntervalMS), CheckLimit: one(l.CheckLimit),
		DuplicateWindowMs: one(l.DuplicatesMS), LiteExpiryMs: one(l.LiteExpiryMS),
	}
}
