package liveness

import (
	"slices"
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	begin := time.UnixMilli(1_000_000)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	a, b := Replica{1, 1}, Replica{2, 1}
	l := New(3 * time.Second)
	if !l.Heard(b, at(0)) || !l.Heard(a, at(0)) || l.Heard(a, at(10)) {
		t.Error("new or not new")
	}
	for ms := 0; ms <= 3000; ms += 500 {
		if s := l.Expire(at(ms)); s != nil {
			t.Errorf("at %d: %v", ms, s)
		}
	}
	if s := l.Expire(at(3005)); !slices.Equal(s, []Replica{b}) {
		t.Errorf("%v", s)
	}
	if l.Alive(b) || !l.Alive(a) || l.Len() != 1 {
		t.Error("alive")
	}
	if !l.Heard(b, at(3100)) {
		t.Error("b is not back")
	}
	if !l.Left(b) || l.Left(b) || l.Alive(b) {
		t.Error("b has left")
	}
	if s := l.Expire(at(3500)); !slices.Equal(s, []Replica{a}) {
		t.Errorf("%v", s)
	}
}

// A process that stood still for a minute does not find everybody silent.
func TestGap(t *testing.T) {
	begin := time.UnixMilli(1_000_000)
	l := New(3 * time.Second)
	l.Expire(begin)
	l.Heard(Replica{1, 1}, begin)
	if s := l.Expire(begin.Add(time.Minute)); s != nil {
		t.Errorf("%v", s)
	}
	var gone []Replica
	for ms := 500; ms <= 4000; ms += 500 {
		gone = append(gone, l.Expire(begin.Add(time.Minute+time.Duration(ms)*time.Millisecond))...)
	}
	if len(gone) != 1 {
		t.Errorf("%v", gone)
	}
}
