package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/internal/obs"
)

// logSettings are the settings of every command.
type logSettings struct {
	LogLevel  string `koanf:"log-level" help:"what to log: debug, info, warn, error"`
	LogFormat string `koanf:"log-format" help:"how to log: text or json, on standard error"`
}

func defaultLog() logSettings { return logSettings{LogLevel: "info", LogFormat: "text"} }

func (s logSettings) logger() (*slog.Logger, error) {
	log, err := obs.NewLogger(os.Stderr, s.LogLevel, s.LogFormat)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return log, nil
}

// newRoot builds the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "perigee",
		Short: "A message service that speaks the protocol of Apache RocketMQ 5",
		Long: "Perigee stores messages in one log and hands them out one by one until each is acknowledged.\n" +
			"Start with `perigee dev`: a whole service in one process.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().String("config", "", "YAML file with settings; a key is a flag's name")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError("%w\nsee: %s --help", err, c.CommandPath())
	})
	root.AddCommand(
		newDev(), newController(), newBroker(), newProxy(),
		newTopic(), newGroup(), newApply(), newSend(), newReceive(), newBench(), newDebug(), newVersion(),
	)
	return root
}

// withSettings gives a command the settings struct into as flags, and fills it before the command
// runs: default < file < environment < flag.
func withSettings(c *cobra.Command, into any) *cobra.Command {
	cfg.AddFlags(c.Flags(), into)
	for _, f := range cfg.Fields(into) {
		settingKeys[f.Key] = true
	}
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		file, err := c.Flags().GetString("config")
		if err != nil {
			return err
		}
		if err := cfg.Load(into, cfg.Source{File: file, Environ: os.Environ(), Known: knownKeys(), Flags: c.Flags()}); err != nil {
			return usageError("%w", err)
		}
		return run(c, args)
	}
	return c
}

// settingKeys are the settings of all commands: one environment and one file may serve several.
var settingKeys = map[string]bool{}

func knownKeys() []string {
	keys := make([]string, 0, len(settingKeys))
	for k := range settingKeys {
		keys = append(keys, k)
	}
	return keys
}

// exactArgs is cobra.ExactArgs with an exit code and a hint.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError("%s needs %s, got %d arguments\nusage: %s", c.CommandPath(), what, len(args), c.UseLine())
		}
		return nil
	}
}
