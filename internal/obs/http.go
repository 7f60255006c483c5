package obs

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// NewMux returns the pages of the HTTP port.
func NewMux(h Health, m *Metrics) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.livePage)
	mux.HandleFunc("GET /readyz", h.readyPage)
	mux.Handle("GET /metrics", m.Handler())
	return mux
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP serves handler on ln until ctx ends, then for a moment longer.
func ServeHTTP(ctx context.Context, ln net.Listener, handler http.Handler) error {
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := srv.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	return errors.Join(err, ignoreClosed(<-ended))
}
