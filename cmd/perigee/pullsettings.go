package main

// pullSettings bound what a broker does for pull consumers.
type pullSettings struct {
	PullsWaiting int `koanf:"pulls-waiting" help:"pulls that may wait for a message at one broker; more are refused"`
}

func (s pullSettings) check() error {
	if s.PullsWaiting < 1 {
		return usageError("--pulls-waiting %d: let 1 or more wait", s.PullsWaiting)
	}
	return nil
}
