package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestClusterPage: every command line of docs/cluster.md exists with its flags, and a script runs its command with
// each of the flags.
func TestClusterPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/cluster.md")
	require.NoError(t, err)
	script := ""
	for _, name := range []string{"cluster", "replicas"} {
		b, err := os.ReadFile("testdata/script/" + name + ".txtar")
		require.NoError(t, err)
		script += string(b)
	}
	lines := 0
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 {
			continue
		}
		for line := range strings.Lines(block) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			require.Equal(t, "perigee", words[0], line)
			lines++
			c, rest, err := newRoot().Find(words[1:])
			require.NoError(t, err, line)
			require.NoError(t, c.ParseFlags(rest), line)
			require.NoError(t, c.ValidateArgs(c.Flags().Args()), line)
			require.Contains(t, script, c.CommandPath()+" ", line)
			c.Flags().Visit(func(f *pflag.Flag) {
				env := "PERIGEE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
				require.True(t, strings.Contains(script, "--"+f.Name) || strings.Contains(script, env+"="), "%s: the script never sets --%s", line, f.Name)
			})
		}
	}
	require.Greater(t, lines, 25)
}
