package retain

import "time"

// Trouble is a row of steps that could not be finished. The zero Trouble is none.
type Trouble struct {
	Since int64 // of the first of them, ms on any clock; 0: the last step went well
	Tries int
	said  int64
}

// sayEvery is how often trouble that stays is told again.
const sayEvery = 10 * time.Minute

// Failed is the trouble after one more step that could not be finished, at a time above 0. say tells whether people are
// to hear of it.
func (t Trouble) Failed(now int64) (next Trouble, say bool) {
	if t.Tries == 0 {
		return Trouble{Since: now, Tries: 1, said: now}, true
	}
	t.Tries++
	if say = now-t.said >= sayEvery.Milliseconds(); say {
		t.said = now
	}
	return t, say
}

// pauseMax bounds the pause between two steps that could not be finished, or one interval if that is longer.
const pauseMax = 2 * time.Minute

// Pause is how long to wait for the next step: the interval, twice as long after each step in the row.
func (t Trouble) Pause(interval time.Duration) time.Duration {
	most := max(interval, pauseMax)
	for range t.Tries - 1 {
		if interval >= most/2 {
			return most
		}
		interval *= 2
	}
	return interval
}
