package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLedger(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	for name, c := range map[string]struct {
		do  func(l *ledger)
		bad string
	}{
		"well": {func(l *ledger) {
			l.sent("a")
			l.came("a", at(1))
			l.came("a", at(2))
			l.ended("a", at(3))
			l.sweep(at(999), time.Minute)
		}, ""},
		"unexpected": {func(l *ledger) { l.came("b", at(1)) }, "not expected"},
		"after ack": {func(l *ledger) {
			l.sent("a")
			l.came("a", at(1))
			l.ended("a", at(1))
			l.sweep(at(20), time.Minute)
			l.came("a", at(21))
		}, "after its ack"},
		"lost":        {func(l *ledger) { l.sent("a"); l.sweep(at(61), time.Minute) }, "not done"},
		"not yet":     {func(l *ledger) { l.sent("a"); l.sweep(at(59), time.Minute) }, ""},
		"unknown":     {func(l *ledger) { l.sweep(at(61), time.Minute) }, ""},
		"refused":     {func(l *ledger) { l.refused("a"); l.came("a", at(1)) }, "not expected"},
		"rolled back": {func(l *ledger) { l.sent("a"); l.rolledBack("a"); l.came("a", at(1)) }, "rolled back"},
		"early":       {func(l *ledger) { l.sending("d", now, at(10)); l.sent("d"); l.came("d", at(9)) }, "before its time"},
		"late": {func(l *ledger) {
			l.sending("d", now, at(100))
			l.sent("d")
			l.refused("a")
			l.sweep(at(159), time.Minute)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(30 * time.Second)
			l.sending("a", now, time.Time{})
			c.do(l)
			if c.bad == "" {
				require.Empty(t, l.wrong())
				return
			}
			require.Len(t, l.wrong(), 1)
			require.Contains(t, l.wrong()[0], c.bad)
		})
	}
	l := newLedger(time.Second)
	l.sending("a", now, time.Time{})
	require.Zero(t, l.left())
	l.sent("a")
	require.Equal(t, 1, l.left())
	l.ended("a", at(1))
	require.Zero(t, l.left())
	l.sweep(at(10), time.Minute)
	require.Empty(t, l.done)
	stored, acked, again := l.counts()
	require.Equal(t, []int64{1, 1, 0}, []int64{stored, acked, again})
}
