package main

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
			"Start with `perigee dev`: a whole service in one process.\n\n" +
			"Every setting is a flag, an environment variable (--grpc-addr is PERIGEE_GRPC_ADDR) or a key of the YAML file that\n" +
			"--config or PERIGEE_CONFIG names. Flags win over the environment, the environment over the file; a name that nobody knows is an error.\n\n" +
			"Exit codes:\n" +
			"  0  done\n" +
			"  1  something else went wrong: no message came in time, damage was found, a port is taken\n" +
			"  2  usage: the command line, a setting or a file is wrong\n" +
			"  3  refused: the service said no\n" +
			"  4  unreachable: nothing answers there, it is no Perigee, or the broker or controller that it needs is away",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().String(cfg.FileKey, "", "YAML file with settings; a key is a flag's name")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError("%w\nsee: %s --help", err, c.CommandPath())
	})
	root.AddCommand(
		newDev(), newController(), newBroker(), newProxy(),
		newCluster(), newTopic(), newGroup(), newDLQ(), newMessage(), newApply(), newSend(), newRecall(), newReceive(), newBench(), newDebug(), newDoctor(), newVersion(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	checkArgs(root)
	return root
}

// checkArgs makes wrong arguments a usage error everywhere: cobra alone prints help for an unknown
// subcommand and calls that a success.
func checkArgs(c *cobra.Command) {
	switch {
	case c.Name() == "help" && c.Parent() != nil && c.Parent().Parent() == nil:
		c.Run, c.RunE = nil, helpOn
	case !c.Runnable():
		c.DisableFlagsInUseLine = true
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return nil
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	case c.Args != nil:
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if _, coded := errors.AsType[exitError](err); err == nil || coded {
				return err
			}
			return usageError("%w\nsee: %s --help", err, c.CommandPath())
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// helpOn prints the help of the command that args name.
func helpOn(c *cobra.Command, args []string) error {
	found := c.Root()
	for _, name := range args {
		i := slices.IndexFunc(found.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name })
		if i < 0 {
			return unknownCommand(found, name)
		}
		found = found.Commands()[i]
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

func unknownCommand(c *cobra.Command, name string) error {
	hint := ""
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "? "
	}
	return usageError("there is no command %s %s\n%ssee: %s --help", c.CommandPath(), name, hint, c.CommandPath())
}

// withSettings gives a command the settings struct into as flags, and fills it before the command
// runs: default < file < environment < flag.
func withSettings(c *cobra.Command, into any) *cobra.Command {
	cfg.AddFlags(c.Flags(), into)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		file, err := c.Flags().GetString(cfg.FileKey)
		if err != nil {
			return err
		}
		if err := cfg.Load(c.Flags(), cfg.Source{File: file, Environ: os.Environ(), Known: settingKeys(c.Root())}); err != nil {
			return usageError("%w", err)
		}
		return run(c, args)
	}
	return c
}

// settingKeys are the settings of a command and all below it: one environment and one file may serve
// several commands.
func settingKeys(c *cobra.Command) []string {
	var keys []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if cfg.IsSetting(f) {
			keys = append(keys, f.Name)
		}
	})
	for _, sub := range c.Commands() {
		keys = append(keys, settingKeys(sub)...)
	}
	return keys
}

// exactArgs is cobra.ExactArgs with an exit code and a hint. what says which arguments they are.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError("%s takes %s, got %q\nusage: %s", c.CommandPath(), what, args, c.UseLine())
		}
		return nil
	}
}
