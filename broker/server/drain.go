package server

import (
	"context"
)

// Drain refuses new links and requests, lets those under way be answered until ctx ends, and stops the
// server. It returns when every session is closed. With Options.Replication the server goes on for the followers
// until Stop.
func (s *Server) Drain(ctx context.Context) {
	s.health.End()
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		close(s.drained)
		s.quietLocked()
	}
	for l := range s.links {
		l.Drain()
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		s.mu.Lock()
		for l := range s.links {
			l.Close()
		}
		s.mu.Unlock()
	}
	if s.o.Replication == nil {
		s.Stop(ctx)
	}
}

// Stop stops the server, after Drain: streams of replication that do not end before ctx does are broken.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	for _, g := range s.gates {
		g.Shut()
	}
	s.mu.Unlock()
	s.stop(ctx)
	s.ends.Wait()
}

// stop stops gRPC, gracefully while ctx lives: last answers may still be on their way to the socket.
func (s *Server) stop(ctx context.Context) {
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.g.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
	}
	s.g.Stop() // ends a graceful stop, too
	<-graceful
}
