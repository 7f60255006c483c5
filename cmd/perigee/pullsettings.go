package main

// pullSettings bound what waits at a broker.
type pullSettings struct {
	MaxRequests  int `koanf:"max-requests" help:"requests that may be under way at one broker; more are refused"`
	PullsWaiting int `koanf:"pulls-waiting" help:"pulls that may wait for a message at one broker; more are refused"`
}

func (s pullSettings) check() error {
	if s.PullsWaiting < 1 {
		return usageError("--pulls-waiting %d: let 1 or more wait", s.PullsWaiting)
	}
	if s.MaxRequests < 1 {
		return usageError("--max-requests %d: use 1 or more", s.MaxRequests)
	}
	return nil
}
