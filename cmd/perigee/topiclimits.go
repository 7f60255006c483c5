package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

// topicLimit is one of the things that a topic may state instead of a setting of brokers or proxies. It is a
// flag of topic create and update and, with its key, a line of a file for apply.
type topicLimit struct {
	flag, key, help string
	min, max        int64 // of what is stated; times in ms
	count           bool  // a number, no time
	off             bool  // it may be switched off
	field           func(*controllerv1.TopicLimits) **int64
}

var topicLimits = []topicLimit{
	{
		flag: "max-delay", key: "maxDelay", help: "longest delay of a message; for DELAY and MIXED; 0 for the proxy's --max-delay",
		min: 1, max: state.MaxDelayMaxMS,
		field: func(l *controllerv1.TopicLimits) **int64 { return &l.MaxDelayMs },
	},
	{
		flag: "check-after", key: "checkAfter", help: "when a transaction that nobody has ended is checked first, if its sender has not said so; for TRANSACTION and MIXED; 0 for the broker's --txn-check-after",
		min: 1, max: state.CheckAfterMaxMS,
		field: func(l *controllerv1.TopicLimits) **int64 { return &l.CheckAfterMs },
	},
	{
		flag: "check-interval", key: "checkInterval", help: "time between two checks of a transaction, from the next check on; 0 for the broker's --txn-check-interval",
		min: state.CheckIntervalMinMS, max: state.CheckIntervalMaxMS,
		field: func(l *controllerv1.TopicLimits) **int64 { return &l.CheckIntervalMs },
	},
	{
		flag: "check-limit", key: "checkLimit", help: "checks of a transaction before it is given up; 0 for the broker's --txn-check-limit",
		min: 1, max: state.CheckLimitMax, count: true,
		field: func(l *controllerv1.TopicLimits) **int64 { return &l.CheckLimit },
	},
	{
		flag: "duplicate-window", key: "duplicateWindow", help: "how long a message that a client sends again is recognised, or off; 0 for the broker's --duplicate-window",
		min: state.DuplicatesMinMS, max: state.DuplicatesMaxMS, off: true,
		field: func(l *controllerv1.TopicLimits) **int64 { return &l.DuplicateWindowMs },
	},
	{
		flag: "lite-expiry", key: "liteExpiry", help: "how long after its last message a lite topic goes; for LITE and MIXED; 0 for the broker's --lite-expiry",
		min: state.LiteExpiryMinMS, max: state.LiteExpiryMaxMS,
		field: func(l *controllerv1.TopicLimits) **int64 { return &l.LiteExpiryMs },
	},
}

// parse reads what somebody wrote.
func (l *topicLimit) parse(text string) (int64, error) {
	if l.off && text == "off" {
		return state.WindowOff, nil
	}
	v, ok := l.value(text)
	if !ok || v != 0 && (v < l.min || v > l.max) {
		return 0, fmt.Errorf("use %s", l.possible())
	}
	return v, nil
}

// value is a number, or a time in whole ms.
func (l *topicLimit) value(text string) (int64, bool) {
	if l.count {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	d, err := time.ParseDuration(text)
	return d.Milliseconds(), err == nil && d%time.Millisecond == 0
}

func (l *topicLimit) possible() string {
	if l.count {
		return fmt.Sprintf("%d to %d, or 0 for the server's setting", l.min, l.max)
	}
	s := fmt.Sprintf("a time of %s to %s, in whole milliseconds", brief(l.min), brief(l.max))
	if l.off {
		s += ", off"
	}
	return s + ", or 0 for the server's setting"
}

// text is a stated value as it is written.
func (l *topicLimit) text(v int64) string {
	switch {
	case v < 0 && l.off:
		return "off"
	case l.count:
		return strconv.FormatInt(v, 10)
	}
	return brief(v)
}

// limitFlags are the limits that flags state. They are flags only: their names are those of settings of brokers
// and proxies, whose environment or file must not become a topic's.
type limitFlags struct{ stated *controllerv1.TopicLimits }

func (f *limitFlags) add(flags *pflag.FlagSet) {
	for i := range topicLimits {
		flags.Var(&limitFlag{&topicLimits[i], f, ""}, topicLimits[i].flag, topicLimits[i].help)
	}
}

// limitFlag is one limit as a flag.
type limitFlag struct {
	limit *topicLimit
	into  *limitFlags
	text  string
}

func (f *limitFlag) String() string { return f.text }

func (f *limitFlag) Type() string {
	if f.limit.count {
		return "number"
	}
	return "duration"
}

func (f *limitFlag) Set(text string) error {
	v, err := f.limit.parse(text)
	if err != nil {
		return err
	}
	if f.into.stated == nil {
		f.into.stated = &controllerv1.TopicLimits{}
	}
	*f.limit.field(f.into.stated) = &v
	f.text = text
	return nil
}

// limitsLine says what a topic states, "" if nothing.
func limitsLine(l *controllerv1.TopicLimits) string {
	var b strings.Builder
	for i := range topicLimits {
		if v := *topicLimits[i].field(orEmpty(l)); v != nil {
			fmt.Fprintf(&b, ", %s %s", strings.ReplaceAll(topicLimits[i].flag, "-", " "), topicLimits[i].text(*v))
		}
	}
	return b.String()
}

func orEmpty(l *controllerv1.TopicLimits) *controllerv1.TopicLimits {
	if l == nil {
		return &controllerv1.TopicLimits{}
	}
	return l
}

// declaredLimits are the limits of a topic in a file for apply; nil is not stated.
type declaredLimits struct {
	MaxDelay        *string `yaml:"maxDelay"`
	CheckAfter      *string `yaml:"checkAfter"`
	CheckInterval   *string `yaml:"checkInterval"`
	CheckLimit      *string `yaml:"checkLimit"`
	DuplicateWindow *string `yaml:"duplicateWindow"`
	LiteExpiry      *string `yaml:"liteExpiry"`
}

// all are the values in the order of topicLimits.
func (d *declaredLimits) all() []*string {
	return []*string{d.MaxDelay, d.CheckAfter, d.CheckInterval, d.CheckLimit, d.DuplicateWindow, d.LiteExpiry}
}

// request is what they ask for, nil if nothing.
func (d *declaredLimits) request() (*controllerv1.TopicLimits, error) {
	var out *controllerv1.TopicLimits
	for i, text := range d.all() {
		if text == nil {
			continue
		}
		v, err := topicLimits[i].parse(*text)
		if err != nil {
			return nil, usageError("%s %q: %w", topicLimits[i].key, *text, err)
		}
		if out == nil {
			out = &controllerv1.TopicLimits{}
		}
		*topicLimits[i].field(out) = &v
	}
	return out, nil
}
