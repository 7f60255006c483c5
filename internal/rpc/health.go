package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Health is the service grpc.health.v1 of a port: its services, and the port as a whole under the empty
// name, serve or do not. It begins with not serving. A watch ends with End, so that it holds up no stop.
type Health struct {
	healthv1.HealthServer
	set      *health.Server
	services []string
	ended    chan struct{}
	once     sync.Once
}

// NewHealth returns the health of some services.
func NewHealth(services ...string) *Health {
	s := health.NewServer()
	h := &Health{HealthServer: s, set: s, services: append([]string{""}, services...), ended: make(chan struct{})}
	h.SetServing(false)
	return h
}

// Register adds the service to a server.
func (h *Health) Register(r grpc.ServiceRegistrar) { healthv1.RegisterHealthServer(r, h) }

// SetServing says whether the services want calls. After End nothing changes any more.
func (h *Health) SetServing(yes bool) {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if yes {
		state = healthv1.HealthCheckResponse_SERVING
	}
	for _, s := range h.services {
		h.set.SetServingStatus(s, state)
	}
}

// End says "not serving" for good and ends every watch once it has been told so.
func (h *Health) End() {
	h.once.Do(func() {
		h.set.Shutdown()
		close(h.ended)
	})
}

// Watch tells of a service whenever its state changes.
func (h *Health) Watch(req *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	w := &watch{Health_WatchServer: stream, ctx: ctx, told: make(chan healthv1.HealthCheckResponse_ServingStatus, 1)}
	go func() {
		defer cancel()
		select {
		case <-h.ended:
		case <-ctx.Done():
			return
		}
		for {
			select {
			case s := <-w.told:
				if s != healthv1.HealthCheckResponse_SERVING {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err := h.HealthServer.Watch(req, w)
	select {
	case <-h.ended:
		if stream.Context().Err() == nil {
			return status.Error(codes.Unavailable, "this server is stopping")
		}
	default:
	}
	return err
}

// watch is a stream that ends sooner, and knows what was sent last.
type watch struct {
	healthv1.Health_WatchServer
	ctx  context.Context
	told chan healthv1.HealthCheckResponse_ServingStatus // holds the newest
}

func (w *watch) Context() context.Context { return w.ctx }

func (w *watch) Send(r *healthv1.HealthCheckResponse) error {
	err := w.Health_WatchServer.Send(r)
	select {
	case <-w.told:
	default:
	}
	w.told <- r.GetStatus()
	return err
}
