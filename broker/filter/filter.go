// Package filter evaluates SQL filters of consumers on stored messages.
//
// The properties that an expression can name are the user properties and, by the names that Apache
// RocketMQ gives them, what its sender said of a message:
//
//	TAGS, KEYS (joined by spaces), UNIQ_KEY (message id), __SHARDINGKEY (message group), __LITE_TOPIC,
//	_SYS_MSG_PRIORITY_, TRACE_CONTEXT, __BORNHOST, BORN_TIMESTAMP and TIMER_DELIVER_MS (ms since 1970),
//	TRAN_MSG ("true", of a transaction), CHECK_IMMUNITY_TIME_IN_SECONDS
package filter

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/sql92"
	"github.com/perigee-mq/perigee/store/record"
)

// SQL is a filter ready for use, by any number of goroutines.
type SQL struct{ expr *sql92.Expr }

// Compile reads an expression. The error is of kind Invalid and says where the fault is.
func Compile(text string) (*SQL, error) {
	x, err := sql92.Parse(text)
	if err != nil {
		return nil, mqerr.New(mqerr.Invalid, "SQL filter: %w", err)
	}
	return &SQL{expr: x}, nil
}

// Parts is what one evaluation costs at most, in operators, values and properties.
func (f *SQL) Parts() int { return f.expr.Parts() }

// Match reports whether a message matches.
func (f *SQL) Match(m *record.Msg) bool {
	return f.expr.Match(func(name string) ([]byte, bool) { return property(m, name) })
}
