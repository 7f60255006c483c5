package obs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Health tells whether a process works (healthz) and whether it should get work (readyz). A nil
// function is a yes; an error is the reason against it.
type Health struct {
	Live  func() error
	Ready func() error
}

// NewMux returns the pages of the HTTP port.
func NewMux(h Health, m *Metrics) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", page(h.Live))
	mux.Handle("GET /readyz", page(h.Ready))
	mux.Handle("GET /metrics", m.Handler())
	return mux
}

func page(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if check != nil {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, err)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
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
