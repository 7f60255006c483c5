package state

import (
	"fmt"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestControllers(t *testing.T) {
	s := New()
	at := Version(0)
	apply := func(c Command) Result {
		at++
		r, _ := s.Apply(at, c)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	is := func(r Result, kind mqerr.Kind) {
		t.Helper()
		if !mqerr.Is(r.Err, kind) {
			t.Errorf("%v, want %v", r.Err, kind)
		}
	}
	one := Controller{ID: "c1", UUID: UUID{1}, Address: "h1:1", Raft: "h1:2"}
	if r := apply(PutController{one}); r.Err != nil || !r.Changed {
		t.Fatalf("%+v", r)
	}
	if r := apply(PutController{one}); r.Err != nil || r.Changed {
		t.Errorf("the same again: %+v", r)
	}
	moved := one
	moved.Address = "h2:1"
	if r := apply(PutController{moved}); r.Err != nil || !r.Changed {
		t.Errorf("another address: %+v", r)
	}
	if have, ok := s.Controller("c1"); !ok || have != moved {
		t.Errorf("%+v", have)
	}
	is(apply(PutController{Controller{ID: "c1", UUID: UUID{2}}}), mqerr.Exists)
	is(apply(PutController{Controller{ID: "c2", UUID: UUID{1}}}), mqerr.Exists)
	is(apply(PutController{Controller{ID: "a=b", UUID: UUID{2}}}), mqerr.Invalid)
	is(apply(PutController{Controller{ID: "c2"}}), mqerr.Invalid)
	is(apply(PutController{Controller{ID: "c2", UUID: UUID{2}, HTTP: "nothing"}}), mqerr.Invalid)
	if r := apply(RemoveController{ID: "c1"}); r.Err != nil || !r.Changed || !s.ControllerGone(one.UUID) {
		t.Errorf("%+v", r)
	}
	if r := apply(RemoveController{ID: "c1"}); r.Err != nil || r.Changed {
		t.Errorf("removed twice: %+v", r)
	}
	is(apply(PutController{one}), mqerr.Denied)
	if r := apply(PutController{Controller{ID: "c1", UUID: UUID{3}}}); r.Err != nil {
		t.Errorf("a new directory in its place: %v", r.Err)
	}
	for i := range 2 * controllersGoneMax {
		id := fmt.Sprintf("x%d", i)
		if r := apply(PutController{Controller{ID: id, UUID: UUID{9, byte(i)}}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		apply(RemoveController{ID: id})
	}
	if len(s.gone) != controllersGoneMax {
		t.Errorf("%d directories are remembered", len(s.gone))
	}
	for i := range ControllersMax - 1 {
		if r := apply(PutController{Controller{ID: fmt.Sprintf("y%d", i), UUID: UUID{8, byte(i)}}}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	is(apply(PutController{Controller{ID: "more", UUID: UUID{7}}}), mqerr.Exhausted)
}
