package obs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Health tells whether a process works (healthz) and whether it should get work (readyz).
type Health struct {
	// Live is the reason to end this process, nil if there is none. A nil function is "it works".
	Live func() error
	// Parts must all be ready for the process to get work. None: it is ready.
	Parts []Part
	// Release is that of the process.
	Release string
}

// Part is a part of a process with a say in whether the process gets work.
type Part struct {
	Name string
	// Ready is the reason against work, nil if there is none.
	Ready func() error
	// Progress is how far a start has come, for machines; false while there is none to show. May be nil.
	Progress func() (Progress, bool)
}

// Progress is how far something has come that reads a log.
type Progress struct {
	From, At, End int64 // positions: where it began, where it is, where it will end
	Records       int64 // that it has read
	Took          time.Duration
}

// Percent is how much of it is done, 0 to 100. Where there is nothing to read it is all done.
func (p Progress) Percent() float64 {
	if p.End <= p.From {
		return 100
	}
	return min(100, max(0, 100*float64(p.At-p.From)/float64(p.End-p.From)))
}

// Readiness is the JSON form of readyz.
type Readiness struct {
	Ready   bool        `json:"ready"`
	Release string      `json:"release"`
	NowMS   int64       `json:"now_ms"` // the clock of the process, since 1970
	Parts   []PartState `json:"parts"`
}

// PartState is one part of it.
type PartState struct {
	Name     string         `json:"name"`
	Ready    bool           `json:"ready"`
	Reason   string         `json:"reason,omitempty"`
	Progress *ProgressState `json:"progress,omitempty"`
}

// ProgressState is a Progress for machines.
type ProgressState struct {
	Percent float64 `json:"percent"`
	Records int64   `json:"records"`
	From    int64   `json:"from"`
	At      int64   `json:"at"`
	End     int64   `json:"end"`
	Seconds float64 `json:"seconds"`
}

// look asks every part.
func (h Health) look() Readiness {
	r := Readiness{Ready: true, Release: h.Release, NowMS: time.Now().UnixMilli(), Parts: []PartState{}}
	for _, p := range h.Parts {
		s := PartState{Name: p.Name, Ready: true}
		if err := p.Ready(); err != nil {
			s.Ready, s.Reason, r.Ready = false, err.Error(), false
			if p.Progress != nil {
				if g, ok := p.Progress(); ok {
					s.Progress = &ProgressState{g.Percent(), g.Records, g.From, g.At, g.End, g.Took.Seconds()}
				}
			}
		}
		r.Parts = append(r.Parts, s)
	}
	return r
}

// text is a line for each part, or just "ok".
func (r Readiness) text() string {
	if r.Ready {
		return "ok\n"
	}
	var b strings.Builder
	for _, p := range r.Parts {
		state := "ok"
		if !p.Ready {
			state = p.Reason
		}
		fmt.Fprintf(&b, "%s: %s\n", p.Name, state)
	}
	return b.String()
}

// readyPage answers as text, or as JSON with ?verbose or "Accept: application/json".
func (h Health) readyPage(w http.ResponseWriter, req *http.Request) {
	state, code := h.look(), http.StatusOK
	if !state.Ready {
		code = http.StatusServiceUnavailable
	}
	body, kind := []byte(state.text()), "text/plain; charset=utf-8"
	if req.URL.Query().Has("verbose") || strings.Contains(req.Header.Get("Accept"), "application/json") {
		if b, err := json.MarshalIndent(state, "", "  "); err == nil {
			body, kind = append(b, '\n'), "application/json"
		}
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// livePage says "ok" or why the process should be ended.
func (h Health) livePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if h.Live != nil {
		if err := h.Live(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}
