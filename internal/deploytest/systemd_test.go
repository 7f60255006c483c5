package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/testbin"
)

const systemd = "../../deploy/systemd"

// unit are the lines of a unit's [Service] section, by key.
func unit(t *testing.T, path string) map[string][]string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	out, section := map[string][]string{}, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		case !ok:
			t.Fatalf("%s: %q", path, line)
		case section == "[Service]":
			out[key] = append(out[key], value)
		}
	}
	return out
}

// environment reads a file of settings.
func environment(t *testing.T, path string) (out []string) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			require.Regexp(t, `^PERIGEE_[A-Z_]+=\S+$`, line, path)
			out = append(out, line)
		}
	}
	return out
}

// TestSystemd starts the units of deploy/systemd with the settings of each machine.
func TestSystemd(t *testing.T) {
	t.Parallel()
	var all []service
	files, err := filepath.Glob(systemd + "/etc/host*/*.env")
	require.NoError(t, err)
	require.Len(t, files, 11)
	for _, file := range files {
		name, host := strings.TrimSuffix(filepath.Base(file), ".env"), filepath.Base(filepath.Dir(file))
		role := map[byte]string{'c': "controller", 'a': "broker", 'b': "broker", 'p': "proxy"}[name[0]]
		head, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(head), "perigee-"+role+"@"+name+"\n", "%s says which unit it is for", file)
		u := unit(t, filepath.Join(systemd, "perigee-"+role+"@.service"))
		require.Equal(t, []string{"/etc/perigee/cluster.env", "/etc/perigee/%i.env"}, u["EnvironmentFile"], role)
		require.Len(t, u["ExecStart"], 1, role)
		words := strings.Fields(u["ExecStart"][0])
		require.Equal(t, "/usr/local/bin/perigee", words[0])
		if role != "proxy" {
			require.Equal(t, []string{"perigee/%i"}, u["StateDirectory"], "each instance has a directory of its own")
		}
		seconds, err := strconv.Atoi(u["TimeoutStopSec"][0])
		require.NoError(t, err)
		all = append(all, service{
			name: name, host: host, args: words[1:], stop: time.Duration(seconds) * time.Second,
			env: append(environment(t, systemd+"/etc/cluster.env"), environment(t, file)...),
		})
	}
	sortServices(all)
	start(t, all).whole([]string{"host1:9876", "host2:9876", "host3:9876"}, []string{"host1:8081", "host2:8081"})
}

// TestSystemdUnits asks systemd itself, where it is.
func TestSystemdUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	bin, err := testbin.Path()
	require.NoError(t, err)
	dir := t.TempDir()
	units, err := filepath.Glob(systemd + "/*.service")
	require.NoError(t, err)
	require.Len(t, units, 3)
	for _, path := range units {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		copied := filepath.Join(dir, filepath.Base(path))
		require.NoError(t, os.WriteFile(copied, []byte(strings.ReplaceAll(string(b), "/usr/local/bin/perigee", bin)), 0o600))
		out, err := exec.Command(analyze, "verify", copied).CombinedOutput()
		for line := range strings.Lines(string(out)) { // it speaks of the machine's other units, too
			require.NotContains(t, line, "perigee-", "%v", err)
		}
	}
}
