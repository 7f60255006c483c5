// Package cfg fills a command's settings from a file, the environment and flags.
//
// A command's settings are one struct whose fields carry their key (`koanf:"grpc-addr"`) and a line
// of help (`help:"..."`), and perhaps a one-letter flag (`short:"o"`); the values in it are the
// defaults. The key is the flag's name, the key of the YAML file, and, in upper case with PERIGEE_ before it and _ for -, the environment variable.
// Later sources win: default, file, environment, flag. A key that nobody knows is an error; an empty
// environment variable is one that is not set.
package cfg

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable that is a setting.
const EnvPrefix = "PERIGEE_"

// Field is one setting of a struct.
type Field struct {
	Key   string
	Short string // one letter, "" for none
	Help  string
	value reflect.Value
}

// Fields lists the settings of a struct, embedded structs included. into is a pointer.
func Fields(into any) []Field { return fields(reflect.ValueOf(into).Elem()) }

func fields(v reflect.Value) []Field {
	var out []Field
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, fields(v.Field(i))...)
			continue
		}
		if key := f.Tag.Get("koanf"); key != "" {
			out = append(out, Field{Key: key, Short: f.Tag.Get("short"), Help: f.Tag.Get("help"), value: v.Field(i)})
		}
	}
	return out
}

// AddFlags registers one flag per setting of into, whose values are the defaults.
func AddFlags(flags *pflag.FlagSet, into any) {
	for _, f := range Fields(into) {
		switch p := f.value.Addr().Interface().(type) {
		case *string:
			flags.StringP(f.Key, f.Short, *p, f.Help)
		case *bool:
			flags.BoolP(f.Key, f.Short, *p, f.Help)
		case *int:
			flags.IntP(f.Key, f.Short, *p, f.Help)
		case *uint32:
			flags.Uint32P(f.Key, f.Short, *p, f.Help)
		case *time.Duration:
			flags.DurationP(f.Key, f.Short, *p, f.Help)
		case *Bytes:
			flags.StringP(f.Key, f.Short, p.String(), f.Help)
		case *[]string:
			flags.StringSliceP(f.Key, f.Short, *p, f.Help)
		default:
			panic(fmt.Sprintf("setting %s has a type without a flag: %T", f.Key, p))
		}
	}
}

// Source says where settings come from.
type Source struct {
	// File is the path of a YAML file, "" for none.
	File string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Known are keys of other commands: allowed in the environment and the file, not used here.
	Known []string
	// Flags are the command's parsed flags.
	Flags *pflag.FlagSet
}

// Load fills into from the sources.
func Load(into any, s Source) error {
	k := koanf.New("\x00") // keys are flat
	mine := map[string]bool{}
	for _, f := range Fields(into) {
		mine[f.Key] = true
	}
	if s.File != "" {
		if err := k.Load(file.Provider(s.File), yaml.Parser()); err != nil {
			return fmt.Errorf("settings file %s: %w", s.File, err)
		}
		if err := unknown(k.Keys(), mine, s.Known, "settings file "+s.File, func(key string) string { return key }); err != nil {
			return err
		}
	}
	e := koanf.New("\x00")
	if err := e.Load(env.Provider("\x00", env.Opt{
		Prefix:        EnvPrefix,
		EnvironFunc:   func() []string { return slices.DeleteFunc(slices.Clone(s.Environ), isEmpty) },
		TransformFunc: func(name, value string) (string, any) { return envKey(name), value },
	}), nil); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	if err := unknown(e.Keys(), mine, s.Known, "environment", EnvName); err != nil {
		return err
	}
	if err := k.Merge(e); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	if s.Flags != nil {
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.Flags.VisitAll(func(f *pflag.Flag) {
			if mine[f.Name] {
				own.AddFlag(f)
			}
		})
		if err := k.Load(posflag.Provider(own, "\x00", k), nil); err != nil {
			return fmt.Errorf("flags: %w", err)
		}
	}
	for _, key := range k.Keys() {
		if !mine[key] {
			k.Delete(key)
		}
	}
	return k.UnmarshalWithConf("", into, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: into, TagName: "koanf", Squash: true, ErrorUnused: true, WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(","), mapstructure.TextUnmarshallerHookFunc()),
	}})
}

// unknown reports keys that neither this command nor another one knows.
func unknown(keys []string, mine map[string]bool, known []string, where string, name func(string) string) error {
	var errs []error
	for _, key := range keys {
		if !mine[key] && !slices.Contains(known, key) {
			errs = append(errs, fmt.Errorf("%s: unknown setting %s", where, name(key)))
		}
	}
	return errors.Join(errs...)
}

// isEmpty tells whether a variable of the environment has no value: that is how scripts and compose
// files write one that is not set.
func isEmpty(variable string) bool {
	return strings.HasSuffix(variable, "=") && strings.Count(variable, "=") == 1
}

func envKey(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, EnvPrefix), "_", "-"))
}

// EnvName is the environment variable of a setting.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}
