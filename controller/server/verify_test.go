package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// Whoever comes while a question is on its way gets the answer to the next one, and shares it.
func TestVerifierShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		answers := make(chan error)
		v := verifier{ask: func(context.Context) error { asked++; return <-answers }}
		var wg sync.WaitGroup
		results := make(chan error, 10)
		want := func() { wg.Go(func() { results <- v.sure(t.Context(), &wg) }) }
		want()
		synctest.Wait()
		want()
		want()
		synctest.Wait()
		if asked != 1 {
			t.Fatalf("asked %d times", asked)
		}
		answers <- nil
		synctest.Wait()
		if len(results) != 1 || asked != 2 {
			t.Fatalf("%d have an answer after the first question, %d asked", len(results), asked)
		}
		answers <- errors.New("no")
		wg.Wait()
		if asked != 2 || len(results) != 3 {
			t.Fatalf("asked %d times for %d answers", asked, len(results))
		}
		if err := <-results; err != nil {
			t.Error(err)
		}
		for range 2 {
			if <-results == nil {
				t.Error("an answer that is too old")
			}
		}
		want()
		synctest.Wait()
		answers <- nil
		wg.Wait()
		if err := <-results; err != nil || asked != 3 {
			t.Errorf("%v after %d questions", err, asked)
		}
	})
}
