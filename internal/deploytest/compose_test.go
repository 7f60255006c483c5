package deploytest

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestCompose starts the services of deploy/compose.yaml.
func TestCompose(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../deploy/compose.yaml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Image   string   `yaml:"image"`
			Command []string `yaml:"command"`
			Volumes []string `yaml:"volumes"`
			Ports   []string `yaml:"ports"`
			Stop    string   `yaml:"stop_grace_period"`
		} `yaml:"services"`
		Volumes map[string]any `yaml:"volumes"`
	}
	require.NoError(t, yaml.Unmarshal(b, &file))
	require.Len(t, file.Services, 11)
	var all []service
	for name, s := range file.Services {
		require.Equal(t, "perigee", s.Image, name)
		stop, err := time.ParseDuration(s.Stop)
		require.NoError(t, err, name)
		if slices.Contains(s.Command, "--data-dir") {
			require.Equal(t, []string{name + ":/data"}, s.Volumes, "%s keeps what it has", name)
			require.Contains(t, file.Volumes, name)
		}
		all = append(all, service{name: name, host: name, args: s.Command, stop: stop})
	}
	sortServices(all)
	start(t, all).whole([]string{"c1:9876", "c2:9876", "c3:9876"}, []string{"p1:8081", "p2:8081"})
}

// sortServices puts controllers first and proxies last.
func sortServices(all []service) {
	rank := map[string]int{"controller": 1, "broker": 2, "proxy": 3}
	slices.SortFunc(all, func(a, b service) int {
		return cmp.Or(cmp.Compare(rank[a.args[0]], rank[b.args[0]]), cmp.Compare(a.name, b.name))
	})
}
