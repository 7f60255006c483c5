package engine

import (
	"time"

	"github.com/perigee-mq/perigee/broker/topic"
)

// What a topic states instead of the broker's settings (topic.Limits) counts from the next decision on. A check
// whose time is in the log, and a message that the duplicate window has forgotten, stay as they are.

// or is what a topic states, in ms or as a number, else the setting.
func or(stated, setting int64) int64 {
	if stated > 0 {
		return stated
	}
	return setting
}

// checkAfter is the time to the first check of a half message whose sender has not said, ms.
func (t *topicState) checkAfter(o *TxnOptions) int64 {
	return or(t.def.Limits.CheckAfterMS, o.CheckAfter.Milliseconds())
}

// checkInterval is the time between two checks, ms.
func (t *topicState) checkInterval(o *TxnOptions) int64 {
	return or(t.def.Limits.CheckIntervalMS, o.CheckInterval.Milliseconds())
}

// checkLimit is how many checks of a half message are sent.
func (t *topicState) checkLimit(o *TxnOptions) int64 {
	return or(t.def.Limits.CheckLimit, int64(o.CheckLimit))
}

// liteExpiry is the time from the last message of a lite topic to its end, ms.
func (e *Engine) liteExpiry(d *topic.Definition) int64 {
	return or(d.Limits.LiteExpiryMS, e.o.LiteExpiry.Milliseconds())
}

// duplicateWindow is how long a message of a topic that is sent again is recognised, ms; 0: not at all.
func (v *views) duplicateWindow(d *topic.Definition) int64 {
	switch {
	case d == nil || d.Limits.DuplicatesMS == 0:
		return v.dups.Own().Milliseconds()
	default:
		return max(0, d.Limits.DuplicatesMS)
	}
}

// relimit lets a topic's new limits count: what was planned by the old ones is planned again.
func (t *topics) relimit(s *topicState, old topic.Limits) {
	if old == s.def.Limits {
		return
	}
	t.w.txns.checks.soon(t.w.stamp)
	if old.LiteExpiryMS != s.def.Limits.LiteExpiryMS {
		t.w.lite.reload(t.w, s.def)
	}
}

// cover makes the duplicate window as long as the longest that a topic states, from a time in ms on.
func (v *views) cover(at int64) {
	v.dups.Cover(time.Duration(v.topics.LongestWindow())*time.Millisecond, at)
}

// decodeTopics takes the topics of a checkpoint, whose duplicate window comes after them.
func (v *views) decodeTopics(b []byte) error {
	err := v.topics.Decode(b)
	v.cover(v.stamp)
	return err
}
