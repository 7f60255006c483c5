package space

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errFull = errors.New("no space left")

// disk is one of 100 GiB with a free part.
func disk(free float64) vfs.Usage {
	return vfs.Usage{Total: 100 << 30, Free: uint64(free * (1 << 30))}
}

func TestLevels(t *testing.T) {
	l := Defaults().Fit(64 << 20)
	require.Equal(t, int64(16<<20), l.Consumers)
	require.Equal(t, int64(8<<20), l.Retention)
	for _, c := range []struct {
		name  string
		was   Level
		held  bool
		seen  Reading
		want  Level
		cause Cause
		holds bool
	}{
		{"empty", Plenty, false, Reading{Disk: disk(100)}, Plenty, None, false},
		{"the percentage alone is not enough", Plenty, false, Reading{Disk: vfs.Usage{Total: 1 << 50, Free: 1 << 40}}, Plenty, None, false},
		{"the bytes alone are not enough", Plenty, false, Reading{Disk: vfs.Usage{Total: 4 << 30, Free: 2 << 30}}, Plenty, None, false},
		{"low", Plenty, false, Reading{Disk: disk(11.9)}, Low, DiskMark, false},
		{"producers", Plenty, false, Reading{Disk: disk(7.9)}, NoProducers, DiskMark, false},
		{"no further file", Plenty, false, Reading{Disk: disk(1.9)}, NoProducers, DiskMark, true},
		{"producers stay out for a while", NoProducers, false, Reading{Disk: disk(8.9)}, NoProducers, DiskMark, false},
		{"and come back", NoProducers, false, Reading{Disk: disk(9.1)}, Low, DiskMark, false},
		{"low stays for a while", Low, false, Reading{Disk: disk(13.4)}, Low, DiskMark, false},
		{"and ends", NoProducers, false, Reading{Disk: disk(16.1)}, Plenty, None, false},
		{"files stay out for a while", NoProducers, true, Reading{Disk: disk(2.2)}, NoProducers, DiskMark, true},
		{"and come back", NoProducers, true, Reading{Disk: disk(2.3)}, NoProducers, DiskMark, false},
		{"an unknown disk refuses nobody", NoProducers, true, Reading{}, Plenty, None, false},
		{"little room while files can be made", Plenty, false, Reading{Disk: disk(50), Room: 1}, Plenty, None, false},
		{"stuck with room", Plenty, false, Reading{Disk: disk(50), Room: 64 << 20, Stuck: errFull}, Low, LogRoom, false},
		{"stuck, room for consumers", Plenty, false, Reading{Disk: disk(50), Room: 20 << 20, Stuck: errFull}, NoProducers, LogRoom, false},
		{"stuck, producers stay out", NoProducers, false, Reading{Disk: disk(50), Room: 28 << 20, Stuck: errFull}, NoProducers, LogRoom, false},
		{"stuck, room for retention", Plenty, false, Reading{Disk: disk(50), Room: 9 << 20, Stuck: errFull}, NoConsumers, LogRoom, false},
		{"queues", Low, false, Reading{Disk: disk(50), Room: 64 << 20, Queues: errFull}, NoProducers, QueueFiles, false},
		{"queues, and no room", Low, false, Reading{Disk: disk(50), Room: 9 << 20, Queues: errFull, Stuck: errFull}, NoConsumers, LogRoom, false},
		{"no ballast", Plenty, false, Reading{Disk: disk(50), Room: 64 << 20, Ballast: errFull}, Low, NoBallast, true},
		{"no ballast, and no room", Plenty, false, Reading{Disk: disk(50), Room: 9 << 20, Ballast: errFull, Stuck: errFull}, NoConsumers, LogRoom, true},
		{"a ballast again", Low, true, Reading{Disk: disk(50)}, Plenty, None, false},
		{"stuck below a mark", Plenty, false, Reading{Disk: disk(1), Room: 9 << 20, Stuck: errFull}, NoConsumers, LogRoom, true},
	} {
		got := State{Level: c.was, Holds: c.held}.Next(l, c.seen)
		require.Equal(t, State{Level: c.want, Cause: c.cause, Seen: c.seen, Holds: c.holds}, got, c.name)
	}
}

// TestMonotone: less space never raises fewer alarms, and a level that ended with one reading does not come
// back with the same.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Defaults().Fit(rapid.Int64Range(1<<20, 1<<30).Draw(t, "segment"))
		total := rapid.Uint64Range(1, 1<<45).Draw(t, "total")
		r := Reading{Disk: vfs.Usage{Total: total, Free: rapid.Uint64Range(0, total).Draw(t, "free")}, Room: rapid.Int64Range(0, 2<<30).Draw(t, "room")}
		if rapid.Bool().Draw(t, "stuck") {
			r.Stuck = errFull
		}
		less := r
		less.Disk.Free = rapid.Uint64Range(0, r.Disk.Free).Draw(t, "less")
		less.Room = rapid.Int64Range(0, r.Room).Draw(t, "less room")
		was := State{Level: Level(rapid.IntRange(0, int(NoConsumers)).Draw(t, "was")), Holds: rapid.Bool().Draw(t, "held")}
		now := was.Next(l, r)
		require.GreaterOrEqual(t, was.Next(l, less).Level, now.Level)
		again := now.Next(l, r)
		require.Equal(t, again, again.Next(l, r), "the same disk, the same level")
		require.LessOrEqual(t, again.Level, max(now.Level, was.Level))
	})
}

func TestReserves(t *testing.T) {
	l := Defaults()
	for w := range Retention {
		require.Greater(t, l.Reserve(w), l.Reserve(w+1), "%v before %v", w, w+1)
	}
	require.Positive(t, l.Reserve(Retention), "a start needs room")
	require.Equal(t, []bool{true, false, false, false}, refused(NoProducers))
	require.Equal(t, []bool{true, true, false, false}, refused(NoConsumers))
	require.Equal(t, []bool{false, false, false, false}, refused(Low))
}

// TestRoomForASnapshot: a large state makes the room that is left to retention larger, and nothing makes it smaller.
func TestRoomForASnapshot(t *testing.T) {
	l := Defaults()
	require.Equal(t, l, l.For(0))
	require.Equal(t, l, l.For(l.Retention/2))
	require.Equal(t, 100<<20+l.Retention/2, l.For(100<<20).Retention)
}

func refused(l Level) (r []bool) {
	for w := range Writers {
		r = append(r, l.Refuses(w))
	}
	return r
}

func TestCheck(t *testing.T) {
	require.NoError(t, Defaults().Check())
	for name, change := range map[string]func(*Limits){
		"percent 0":       func(l *Limits) { l.Low.Used = 0 },
		"percent 101":     func(l *Limits) { l.Grow.Used = 101 },
		"bytes":           func(l *Limits) { l.Producers.Free = -1 },
		"order":           func(l *Limits) { l.Producers.Used = 80 },
		"order of bytes":  func(l *Limits) { l.Grow.Free = 9 << 30 },
		"reserve":         func(l *Limits) { l.Consumers = -1 },
		"another reserve": func(l *Limits) { l.Retention = -1 },
	} {
		l := Defaults()
		change(&l)
		require.Error(t, l.Check(), name)
	}
}
