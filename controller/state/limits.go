package state

import (
	"fmt"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Limits are what a topic states instead of the settings of brokers and proxies, times in ms. 0 means
// the setting.
type Limits struct {
	MaxDelayMS      int64 `json:"max_delay_ms,omitempty"`        // from a send to the delivery time
	CheckAfterMS    int64 `json:"check_after_ms,omitempty"`      // until a transaction is checked first, if its sender has not said
	CheckIntervalMS int64 `json:"check_interval_ms,omitempty"`   // between two checks
	CheckLimit      int64 `json:"check_limit,omitempty"`         // checks before a transaction is given up
	DuplicatesMS    int64 `json:"duplicate_window_ms,omitempty"` // how long a message sent again is recognised; WindowOff: not at all
	LiteExpiryMS    int64 `json:"lite_expiry_ms,omitempty"`      // from the last message of a lite topic to its end
}

// WindowOff is the duplicate window of a topic that has none.
const WindowOff = -1

// LimitsChange is what a command says about limits: nil keeps what is there, 0 goes back to the setting.
type LimitsChange struct {
	MaxDelayMS      *int64 `json:"max_delay_ms,omitempty"`
	CheckAfterMS    *int64 `json:"check_after_ms,omitempty"`
	CheckIntervalMS *int64 `json:"check_interval_ms,omitempty"`
	CheckLimit      *int64 `json:"check_limit,omitempty"`
	DuplicatesMS    *int64 `json:"duplicate_window_ms,omitempty"`
	LiteExpiryMS    *int64 `json:"lite_expiry_ms,omitempty"`
}

// Bounds on limits, in ms but for the last one; all are inclusive. 0 is possible beside them, and WindowOff.
const (
	MaxDelayMaxMS      = 366 * dayMS
	CheckAfterMaxMS    = 7 * dayMS
	CheckIntervalMinMS = 1000
	CheckIntervalMaxMS = 7 * dayMS
	DuplicatesMinMS    = 1000
	DuplicatesMaxMS    = 7 * dayMS
	LiteExpiryMinMS    = 15 * 60_000
	LiteExpiryMaxMS    = 366 * dayMS
	CheckLimitMax      = 10_000

	dayMS = 24 * 3600_000
)

// bound is what is possible for one limit.
type bound struct {
	what     string
	v        *int64
	min, max int64
	unit     string
}

// validate refuses limits that no topic can have.
func (c *LimitsChange) validate(topic string) error {
	window := c.DuplicatesMS
	if window != nil && *window == WindowOff {
		window = nil
	}
	for _, b := range []bound{
		{"longest delay", c.MaxDelayMS, 1, MaxDelayMaxMS, " ms"},
		{"time to the first check", c.CheckAfterMS, 1, CheckAfterMaxMS, " ms"},
		{"time between two checks", c.CheckIntervalMS, CheckIntervalMinMS, CheckIntervalMaxMS, " ms"},
		{"number of checks", c.CheckLimit, 1, CheckLimitMax, ""},
		{"duplicate window", window, DuplicatesMinMS, DuplicatesMaxMS, " ms"},
		{"expiry of lite topics", c.LiteExpiryMS, LiteExpiryMinMS, LiteExpiryMaxMS, " ms"},
	} {
		if b.v != nil && *b.v != 0 && (*b.v < b.min || *b.v > b.max) {
			return mqerr.New(mqerr.Invalid, "topic %q: the %s is %d%s, %d to %d are possible, and 0 for the server's setting", topic, b.what, *b.v, b.unit, b.min, b.max)
		}
	}
	return nil
}

// over returns l with what c states.
func (c *LimitsChange) over(l Limits) Limits {
	for _, f := range []struct{ to, from *int64 }{
		{&l.MaxDelayMS, c.MaxDelayMS},
		{&l.CheckAfterMS, c.CheckAfterMS},
		{&l.CheckIntervalMS, c.CheckIntervalMS},
		{&l.CheckLimit, c.CheckLimit},
		{&l.DuplicatesMS, c.DuplicatesMS},
		{&l.LiteExpiryMS, c.LiteExpiryMS},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return l
}

// set returns l as a change that states all of it.
func (l Limits) set() *LimitsChange {
	return &LimitsChange{&l.MaxDelayMS, &l.CheckAfterMS, &l.CheckIntervalMS, &l.CheckLimit, &l.DuplicatesMS, &l.LiteExpiryMS}
}

// fit refuses limits of messages that a topic of type t does not take: they would do nothing.
func (l *Limits) fit(topic string, t TopicType) error {
	for _, f := range []struct {
		given bool
		what  string
		needs TopicType
	}{
		{l.MaxDelayMS != 0, "a longest delay", Delay},
		{l.CheckAfterMS != 0 || l.CheckIntervalMS != 0 || l.CheckLimit != 0, "limits of checks", Transaction},
		{l.LiteExpiryMS != 0, "an expiry of lite topics", Lite},
	} {
		if f.given && t != f.needs && t != Mixed {
			return mqerr.New(mqerr.Invalid, "topic %q of type %v can't have %s, which is for the types %v and MIXED: set it to 0", topic, t, f.what, f.needs)
		}
	}
	return nil
}

// check tells what is wrong with stored limits.
func (l *Limits) check(t *Topic) error {
	err := l.set().validate(t.Name)
	if err == nil {
		err = l.fit(t.Name, t.Type)
	}
	if err != nil {
		return fmt.Errorf("stored limits: %w", err)
	}
	return nil
}
