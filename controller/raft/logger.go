package raft

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	hclog "github.com/hashicorp/go-hclog"
)

// logger is slog for the library. Its notes about elections and snapshots are of no use to an operator
// of a working cluster, so everything below an error goes down to debug.
type logger struct {
	hclog.Logger // does nothing; answers the questions about levels and names
	log          *slog.Logger
}

func newLogger(log *slog.Logger) hclog.Logger {
	return &logger{Logger: hclog.NewNullLogger(), log: log.With(slog.String("part", "raft"))}
}

func (l *logger) put(level slog.Level, msg string, args []any) {
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(args)/2)
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.Any(fmt.Sprint(args[i]), args[i+1]))
	}
	l.log.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // the library's constant messages
}

// Log takes a record of any level.
func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	if level >= hclog.Error {
		l.Error(msg, args...)
		return
	}
	l.put(slog.LevelDebug, msg, args)
}

// Trace drops the record.
func (l *logger) Trace(string, ...any) {}

// Debug logs at debug.
func (l *logger) Debug(msg string, args ...any) { l.put(slog.LevelDebug, msg, args) }

// Info logs at debug.
func (l *logger) Info(msg string, args ...any) { l.put(slog.LevelDebug, msg, args) }

// Warn logs at debug.
func (l *logger) Warn(msg string, args ...any) { l.put(slog.LevelDebug, msg, args) }

// Error logs at error, or at debug what is said of nodes that are away.
func (l *logger) Error(msg string, args ...any) {
	level := slog.LevelError
	if slices.ContainsFunc(unreached, func(begin string) bool { return strings.HasPrefix(msg, begin) }) {
		level = slog.LevelDebug
	}
	l.put(level, msg, args)
}

// With returns a logger that adds args to every record.
func (l *logger) With(args ...any) hclog.Logger {
	return &logger{Logger: l.Logger, log: l.log.With(args...)}
}

// Named returns the logger itself: there is one part only.
func (l *logger) Named(string) hclog.Logger { return l }

// ResetNamed returns the logger itself.
func (l *logger) ResetNamed(string) hclog.Logger { return l }

// peerLogger is the logger of the port for other nodes. What the library cannot decode there, or cannot answer,
// came from a stranger or a node that has gone: an operator has nothing to do about it.
type peerLogger struct{ hclog.Logger }

// strange are the library's messages about that.
var strange = []string{"failed to decode incoming command", "failed to flush response"}

// unreached begin the library's messages about a node that is away: several a second for each. The node
// itself says so once (observe).
var unreached = []string{"failed to heartbeat to", "failed to appendEntries to", "failed to make request", "failed to pipeline appendEntries", "failed to send snapshot", "failed to install snapshot", "failed to transfer leadership"}

// Error logs at error, or at debug what strangers cause.
func (l peerLogger) Error(msg string, args ...any) {
	if slices.Contains(strange, msg) {
		l.Debug(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}
