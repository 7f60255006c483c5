// Package obs sets up what an operator sees of a process: structured logs, metrics in the Prometheus
// format, and the health pages of the HTTP port.
package obs

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLogger returns a logger that writes to w. Level is debug, info, warn or error; format text or
// json.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("log format %q: use text or json", format)
}
