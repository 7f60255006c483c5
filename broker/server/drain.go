package server

import (
	"context"
)

// Rest says that this broker does not lead, or not any more: the links are told to go elsewhere and end when their
// requests are answered, or when ctx does. It returns when every link has ended. New ones wait for Begin, not for long,
// since another replica leads or is about to.
func (s *Server) Rest(ctx context.Context) {
	s.mu.Lock()
	if s.leader != nil {
		s.leader, s.begun = nil, make(chan struct{})
	}
	s.rests = true
	if len(s.links) == 0 {
		s.mu.Unlock()
		return
	}
	if s.quiet == nil {
		s.quiet = make(chan struct{})
	}
	quiet := s.quiet
	for l := range s.links {
		l.Drain()
	}
	s.mu.Unlock()
	select {
	case <-quiet:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	for l := range s.links {
		l.Close()
	}
	s.mu.Unlock()
	<-quiet
}

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
