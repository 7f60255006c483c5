package memory

import (
	"io/fs"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMachine(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing":         {nil, 0},
		"machine":         {map[string]string{"/proc/meminfo": "MemTotal:       4194304 kB\nMemFree: 1 kB\n"}, 4 * gib},
		"group v2":        {map[string]string{"/proc/meminfo": "MemTotal: 4194304 kB\n", "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": "1073741824\n", "/sys/fs/cgroup/a/b/memory.max": "max\n"}, gib},
		"group v1":        {map[string]string{"/proc/meminfo": "MemTotal: 4194304 kB\n", "/proc/self/cgroup": "4:cpu,memory:/x\n", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2147483648"}, 2 * gib},
		"group is larger": {map[string]string{"/proc/meminfo": "MemTotal: 1048576 kB\n", "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "9223372036854771712\n"}, gib},
		"nonsense":        {map[string]string{"/proc/meminfo": "MemTotal: many kB\n", "/proc/self/cgroup": "x\n::\n0::/a\n", "/sys/fs/cgroup/a/memory.max": "-5"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, machine(func(file string) ([]byte, error) {
				if text, ok := c.files[file]; ok {
					return []byte(text), nil
				}
				return nil, fs.ErrNotExist
			}))
		})
	}
	require.GreaterOrEqual(t, Default(), int64(floor))
}

// TestPressure: refused from one share on, taken again only below a lower one.
func TestPressure(t *testing.T) {
	g := New(1000<<20, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		live    int64
		pressed bool
	}{{500, false}, {849, false}, {850, true}, {900, true}, {801, true}, {799, false}, {840, false}, {2000, true}} {
		g.see(c.live << 20)
		require.Equal(t, c.pressed, g.Pressed(), "%d MiB", c.live)
	}
	require.Zero(t, g.Stats().Refused, "asking refuses nobody")
	g.Refused()
	require.EqualValues(t, 1, g.Stats().Refused)
	(*Guard)(nil).Refused()
	require.False(t, (*Guard)(nil).Pressed(), "no guard, no pressure")
	require.Positive(t, newSamples().live())
}

func FuzzMachine(f *testing.F) {
	f.Add("MemTotal: 5 kB\n", "0::/a/b\n", "max")
	f.Fuzz(func(t *testing.T, info, groups, limit string) {
		n := machine(func(file string) ([]byte, error) {
			switch file {
			case "/proc/meminfo":
				return []byte(info), nil
			case "/proc/self/cgroup":
				return []byte(groups), nil
			}
			return []byte(limit), nil
		})
		if n < 0 {
			t.Fatal(n)
		}
	})
}
