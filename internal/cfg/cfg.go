// Package cfg fills a command's settings from a file, the environment and flags.
//
// A command's settings are one struct whose fields carry their key (`koanf:"grpc-addr"`) and a line
// of help (`help:"..."`), and perhaps a one-letter flag (`short:"o"`); the values in it are the
// defaults. The key is the flag's name, the key of the YAML file, and, in upper case with PERIGEE_
// before it and _ for -, the environment variable. Later sources win: default, file, environment,
// flag. All of them are read by the flag's own parser, so that a text means the same everywhere. A key
// that nobody knows is an error; an empty environment variable, or a key without a value, is not set.
package cfg

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable that is a setting.
const EnvPrefix = "PERIGEE_"

// FileKey names the settings file: a flag or a variable, never a key of the file itself.
const FileKey = "config"

// mark is the annotation of flags that are settings.
const mark = "perigee_setting"

// AddFlags registers one flag per setting of into, embedded structs included. into is a pointer to a
// struct; what it holds are the defaults, and a flag writes there.
func AddFlags(flags *pflag.FlagSet, into any) { addFlags(flags, reflect.ValueOf(into).Elem()) }

func addFlags(flags *pflag.FlagSet, v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			addFlags(flags, v.Field(i))
			continue
		}
		if key := f.Tag.Get("koanf"); key != "" {
			addFlag(flags, v.Field(i).Addr().Interface(), key, f.Tag.Get("short"), f.Tag.Get("help"))
		}
	}
}

func addFlag(flags *pflag.FlagSet, into any, key, short, help string) {
	switch p := into.(type) {
	case *string:
		flags.StringVarP(p, key, short, *p, help)
	case *bool:
		flags.BoolVarP(p, key, short, *p, help)
	case *int:
		flags.IntVarP(p, key, short, *p, help)
	case *uint32:
		flags.Uint32VarP(p, key, short, *p, help)
	case *time.Duration:
		flags.DurationVarP(p, key, short, *p, help)
	case *[]string:
		flags.StringSliceVarP(p, key, short, *p, help)
	case *Texts:
		flags.StringArrayVarP((*[]string)(p), key, short, *p, help)
	case pflag.Value:
		flags.VarP(p, key, short, help)
	default:
		panic(fmt.Sprintf("setting %s has a type without a flag: %T", key, p))
	}
	flags.Lookup(key).Annotations = map[string][]string{mark: nil}
}

// Texts are values that may have commas in them: a flag given several times is a list, a comma is a
// comma.
type Texts []string

// IsSetting tells whether a flag is one that AddFlags made.
func IsSetting(f *pflag.Flag) bool {
	_, ok := f.Annotations[mark]
	return ok
}

// Source says where settings come from besides flags.
type Source struct {
	// File is the path of a YAML file, "" for the one that the environment names, if it does.
	File string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Known are keys of other commands: allowed in the environment and the file, not used here.
	Known []string
}

// Load sets the flags that are settings and were not given on the command line, as if they had been.
func Load(flags *pflag.FlagSet, s Source) error {
	fromEnv, err := s.environment()
	if err != nil {
		return err
	}
	if s.File == "" {
		s.File = fromEnv.String(FileKey)
	}
	fromEnv.Delete(FileKey)
	page := &page{lines: map[string]int{}}
	all := koanf.New(delimiter)
	if s.File != "" {
		if err := all.Load(file.Provider(s.File), page); err != nil {
			return fmt.Errorf("settings file %s: %w", s.File, err)
		}
	}
	place := func(key string) string {
		if fromEnv.Exists(key) {
			return "environment: "
		}
		return fmt.Sprintf("settings file %s, line %d: ", s.File, page.lines[key])
	}
	var errs []error
	for _, key := range all.Keys() {
		if s.known(flags, key) == "" {
			errs = append(errs, s.unknown(flags, place(key), key, func(key string) string { return key }))
		}
	}
	for _, key := range fromEnv.Keys() {
		if s.known(flags, key) == "" {
			errs = append(errs, s.unknown(flags, "environment: ", key, EnvName))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := all.Merge(fromEnv); err != nil {
		return err
	}
	for _, key := range all.Keys() {
		f := flags.Lookup(key)
		if f == nil || !IsSetting(f) || f.Changed {
			continue
		}
		if err := set(f, all.Get(key)); err != nil {
			name := key
			if fromEnv.Exists(key) {
				name = EnvName(key)
			}
			errs = append(errs, fmt.Errorf("%s%s: %w", place(key), name, err))
		}
		f.Changed = true
	}
	return errors.Join(errs...)
}

// delimiter would part the levels of a key; keys have only one.
const delimiter = "\x00"

// environment reads the variables that are settings.
func (s Source) environment() (*koanf.Koanf, error) {
	k := koanf.New(delimiter)
	err := k.Load(env.Provider(delimiter, env.Opt{
		Prefix:        EnvPrefix,
		EnvironFunc:   func() []string { return slices.DeleteFunc(slices.Clone(s.Environ), isEmpty) },
		TransformFunc: func(name, value string) (string, any) { return envKey(name), value },
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	return k, nil
}

// known returns the key if this command or another one has it.
func (s Source) known(flags *pflag.FlagSet, key string) string {
	if f := flags.Lookup(key); f != nil && IsSetting(f) || slices.Contains(s.Known, key) {
		return key
	}
	return ""
}

// unknown says that nobody knows a key, and which one may have been meant.
func (s Source) unknown(flags *pflag.FlagSet, place, key string, name func(string) string) error {
	keys := slices.Clone(s.Known)
	flags.VisitAll(func(f *pflag.Flag) {
		if IsSetting(f) {
			keys = append(keys, f.Name)
		}
	})
	hint := ""
	if near := Nearest(key, keys); near != "" {
		hint = ": did you mean " + name(near) + "?"
	}
	return fmt.Errorf("%sunknown setting %s%s", place, name(key), hint)
}

// set gives a flag the value of a file or of a variable.
func set(f *pflag.Flag, value any) error {
	switch v := value.(type) {
	case string:
		if err := f.Value.Set(v); err != nil {
			return fmt.Errorf("%q: %w", v, err)
		}
		return nil
	case []string:
		if list, ok := f.Value.(pflag.SliceValue); ok {
			return list.Replace(v)
		}
	}
	return errors.New("takes one value")
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
