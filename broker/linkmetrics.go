package broker

import "go.opentelemetry.io/otel/metric"

// linkGauges are about the links of proxies. A broker in the process of its proxy has none: they are absent then.
func (b *Broker) linkGauges(r *registrar) func(metric.Observer) {
	open := r.gauge("perigee_broker_links", "links of proxies that are open; absent without a port for them", "")
	refused := r.counter("perigee_broker_links_refused", "links that were refused since as many were open as may be; absent without a port for them")
	conns := r.gauge("perigee_broker_connections", "connections of proxies and of replicas that follow; absent without a port for them", "")
	connsRefused := r.counter("perigee_broker_connections_refused", "such connections that were closed since as many were open as may be; absent without a port for them")
	return func(o metric.Observer) {
		if b.link != nil {
			o.ObserveInt64(conns, b.link.Connections().Open())
			o.ObserveInt64(connsRefused, b.link.Connections().Refused())
			o.ObserveInt64(open, int64(b.link.Links()))
			o.ObserveInt64(refused, b.link.Refused())
		}
	}
}
