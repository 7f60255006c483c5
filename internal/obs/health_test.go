package obs

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHealthPages(t *testing.T) {
	m, err := NewMetrics()
	require.NoError(t, err)
	var dead, busy error
	mux := NewMux(Health{Live: func() error { return dead }, Parts: []Part{
		{Name: "proxy", Ready: func() error { return nil }}, {Name: "broker", Ready: func() error { return busy }},
	}}, m)
	for _, path := range []string{"/healthz", "/readyz"} {
		code, body := get(t, mux, path)
		require.Equal(t, http.StatusOK, code, path)
		require.Equal(t, "ok\n", body, path)
	}

	busy = errors.New("the controller has not been heard of yet")
	code, body := get(t, mux, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "proxy: ok\nbroker: the controller has not been heard of yet\n", body)
	code, _ = get(t, mux, "/healthz")
	require.Equal(t, http.StatusOK, code, "not ready is not broken")

	dead = errors.New("the log failed")
	code, body = get(t, mux, "/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "the log failed\n", body)

	code, _ = get(t, NewMux(Health{}, m), "/readyz")
	require.Equal(t, http.StatusOK, code, "no part is a yes")
	code, _ = get(t, mux, "/nosuch")
	require.Equal(t, http.StatusNotFound, code)
}

// TestReadyShowsProgress: while a broker recovers the page says how far it is, as JSON too.
func TestReadyShowsProgress(t *testing.T) {
	m, err := NewMetrics()
	require.NoError(t, err)
	starting := errors.New("recovering")
	mux := NewMux(Health{Parts: []Part{{
		Name: "broker", Ready: func() error { return starting },
		Progress: func() (Progress, bool) {
			return Progress{From: 1000, At: 1500, End: 3000, Records: 42, Took: 2500 * time.Millisecond}, starting != nil
		},
	}}}, m)
	code, body := get(t, mux, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "broker: recovering\n", body)

	for _, ask := range []func(*http.Request){
		func(r *http.Request) { r.URL.RawQuery = "verbose" },
		func(r *http.Request) { r.Header.Set("Accept", "application/json") },
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
		ask(r)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		var got Readiness
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.False(t, got.Ready)
		require.Equal(t, "broker", got.Parts[0].Name)
		require.Equal(t, &ProgressState{Percent: 25, Records: 42, From: 1000, At: 1500, End: 3000, Seconds: 2.5}, got.Parts[0].Progress)
	}

	starting = nil
	_, body = get(t, mux, "/readyz?verbose")
	var got Readiness
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.True(t, got.Ready)
	require.Equal(t, []PartState{{Name: "broker", Ready: true}}, got.Parts)
	require.InDelta(t, time.Now().UnixMilli(), got.NowMS, 10_000)
}

func TestProgressPercent(t *testing.T) {
	for _, c := range []struct {
		p    Progress
		want float64
	}{{Progress{}, 100}, {Progress{From: 5, At: 5, End: 9}, 0}, {Progress{From: 5, At: 20, End: 9}, 100}, {Progress{From: 5, At: 1, End: 9}, 0}, {Progress{At: 3, End: 4}, 75}} {
		require.InDelta(t, c.want, c.p.Percent(), 0.001, "%+v", c.p)
	}
}
