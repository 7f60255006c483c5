package state

import "github.com/perigee-mq/perigee/internal/mqerr"

// Growth is a retry policy whose delay grows with each delivery, from InitialMS to MaxMS.
type Growth struct {
	InitialMS  int64 `json:"initial_ms"`
	MaxMS      int64 `json:"max_ms"`
	Multiplier int   `json:"multiplier_milli"` // in thousandths
}

// Bounds on the multiplier, in thousandths.
const (
	GrowthMin = 1000
	GrowthMax = 100_000
)

// validate refuses a policy that no group can have; list says that a list of delays was given, too.
func (g *Growth) validate(group string, list bool) error {
	switch {
	case list:
		return mqerr.New(mqerr.Invalid, "group %q: an exponential retry policy and a list of delays were given: choose one", group)
	case g.InitialMS < 1 || g.MaxMS < g.InitialMS || g.MaxMS > BackoffMaxMS:
		return mqerr.New(mqerr.Invalid, "group %q: the retry delays must grow from at least 1 ms to at most %d ms", group, int64(BackoffMaxMS))
	case g.Multiplier < GrowthMin || g.Multiplier > GrowthMax:
		return mqerr.New(mqerr.Invalid, "group %q: the retry delays must grow by a factor from 1 to %d", group, GrowthMax/1000)
	}
	return nil
}

func (g *Growth) equal(o *Growth) bool {
	return g == nil && o == nil || g != nil && o != nil && *g == *o
}
