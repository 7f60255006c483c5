package main

import (
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/controller/state"
)

// inFlightSettings bound what a broker leases.
type inFlightSettings struct {
	MaxInFlight       int `koanf:"max-in-flight" help:"messages that are leased to one group at this broker, at most, unless the group has its own bound; its receives wait at it; 0: no bound"`
	MaxInFlightClient int `koanf:"max-in-flight-client" help:"messages that are leased to one client of a group at this broker, at most, unless the group has its own bound; 0: no bound"`
}

func defaultInFlight() inFlightSettings { return inFlightSettings{MaxInFlightClient: 100_000} }

func (s inFlightSettings) check() error {
	if min(s.MaxInFlight, s.MaxInFlightClient) < 0 || max(s.MaxInFlight, s.MaxInFlightClient) > state.InFlightMax {
		return usageError("--max-in-flight and --max-in-flight-client go from 0 (no bound) to %d", state.InFlightMax)
	}
	return nil
}

func (s inFlightSettings) apply(o *engine.Options) {
	o.MaxInFlight, o.MaxInFlightClient = int64(s.MaxInFlight), int64(s.MaxInFlightClient)
}
