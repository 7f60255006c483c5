package proxy

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// register makes the proxy's instruments: observed from plain counters when they are collected.
func register(m metric.Meter, p *Proxy) error {
	up, err := m.Int64ObservableGauge("rocketmq_proxy_up", metric.WithDescription("1 when this proxy serves"))
	if err != nil {
		return err
	}
	known, err := m.Int64ObservableGauge("perigee_proxy_clients", metric.WithDescription("clients known"))
	if err != nil {
		return err
	}
	waiting, err := m.Int64ObservableGauge("perigee_proxy_receives_waiting", metric.WithDescription("receives that wait for messages"))
	if err != nil {
		return err
	}
	polls, err := m.Int64ObservableCounter("perigee_proxy_polls", metric.WithDescription("what the long polls have done, by kind"))
	if err != nil {
		return err
	}
	checks, err := m.Int64ObservableCounter("perigee_proxy_transaction_checks", metric.WithDescription("checks of transactions, by what became of them"))
	if err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		serving := int64(0)
		if p.Healthy() == nil {
			serving = 1
		}
		s := p.polls.Stats()
		o.ObserveInt64(up, serving)
		o.ObserveInt64(known, int64(p.clients.Len()))
		o.ObserveInt64(waiting, int64(s.Waiting))
		for result, n := range map[string]uint64{"sent": p.checks.Stats().Sent, "no_producer": p.checks.Stats().Unsent} {
			o.ObserveInt64(checks, int64(n), metric.WithAttributes(attribute.String("result", result)))
		}
		for kind, n := range map[string]uint64{
			"receives": s.Receives, "refused": s.Refused, "pops": s.Pops, "broker_requests": s.Requests, "timer_wakes": s.TimerWakes,
			"given_back": s.GivenBack, "not_given_back": s.NotGiven,
		} {
			o.ObserveInt64(polls, int64(n), metric.WithAttributes(attribute.String("kind", kind)))
		}
		return nil
	}, up, known, waiting, polls, checks)
	return err
}
