package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/cfg"
)

var update = flag.Bool("update", false, "write docs/settings.md")

const settingsPage = "../../docs/settings.md"

const settingsHead = `# Settings

Written from the settings of each command: change those, then run ` + "`go test ./cmd/perigee -run TestSettingsPage -update`" + `.

Every setting is a flag, an environment variable or a key of the YAML file given with ` + "`--config` or `PERIGEE_CONFIG`" + `; the key is the flag's name. Later ones win:
default, file, environment, flag. A name that no command knows is an error; one of another command is allowed, so that one file or environment can serve
several. An empty environment variable, or a key without a value, is not set. Times are written like 500ms, 30s or 1m; sizes like 64MiB; lists with commas,
in the file also as a YAML list. ` + "`GOGC` and `GOMEMLIMIT`" + ` work as in every Go program; servers keep GOGC between 10 and 400 by what is live, unless it is set ([limits](limits.md)).
`

// TestSettingsPage tells whether docs/settings.md is what the commands say.
func TestSettingsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(settingsHead)
	writeSettings(&b, newRoot())
	if *update {
		require.NoError(t, os.WriteFile(settingsPage, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(settingsPage)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "run: go test ./cmd/perigee -run TestSettingsPage -update")
}

// writeSettings writes a table for every command below c that has settings.
func writeSettings(b *strings.Builder, c *cobra.Command) {
	var rows []string
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if cfg.IsSetting(f) {
			rows = append(rows, settingRow(f))
		}
	})
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n| flag, key | environment | type | default | meaning |\n|---|---|---|---|---|\n%s", c.CommandPath(), c.Short, strings.Join(rows, ""))
	}
	for _, sub := range c.Commands() {
		writeSettings(b, sub)
	}
}

func settingRow(f *pflag.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name += ", `-" + f.Shorthand + "`"
	}
	value := f.DefValue
	switch value {
	case "", "[]":
		value = ""
	default:
		value = "`" + value + "`"
	}
	kind := strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array")
	if kind != f.Value.Type() {
		kind = "list"
	}
	return fmt.Sprintf("| %s | `%s` | %s | %s | %s |\n", name, cfg.EnvName(f.Name), kind, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
}

// TestHelpOfSettings: a setting without a word of help is no setting.
func TestHelpOfSettings(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { require.NotEmpty(t, f.Usage, "%s --%s", c.CommandPath(), f.Name) })
		for _, sub := range c.Commands() {
			require.NotEmpty(t, sub.Short, sub.CommandPath())
			walk(sub)
		}
	}
	walk(newRoot())
}
