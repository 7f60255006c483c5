package cfg

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

type common struct {
	Server string `koanf:"server" help:"address of a proxy"`
}

type settings struct {
	common `koanf:",squash"`
	Addr   string        `koanf:"grpc-addr" help:"address"`
	Auto   bool          `koanf:"auto-create" help:"make missing names"`
	Wait   time.Duration `koanf:"wait" help:"how long"`
	Size   Bytes         `koanf:"segment-bytes" help:"size"`
	Peers  []string      `koanf:"controller" help:"addresses"`
	ID     uint32        `koanf:"id" help:"number"`
	Notes  Texts         `koanf:"note" help:"texts"`
}

func defaults() settings {
	return settings{common: common{Server: "127.0.0.1:8081"}, Addr: "127.0.0.1:1", Auto: true, Wait: time.Second, Size: 64 << 20, Peers: []string{}, ID: 1, Notes: Texts{}}
}

func load(t *testing.T, file string, env []string, args ...string) (settings, error) {
	t.Helper()
	s := defaults()
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(flags, &s)
	flags.Bool("help", false, "")
	require.NoError(t, flags.Parse(args))
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "p.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	}
	err := Load(flags, Source{File: path, Environ: env, Known: []string{"topic"}})
	return s, err
}

func TestDefaultsStay(t *testing.T) {
	s, err := load(t, "", nil)
	require.NoError(t, err)
	require.Equal(t, defaults(), s)
}

func TestLaterSourcesWin(t *testing.T) {
	file := "grpc-addr: file:1\nwait: 2s\nsegment-bytes: 1MiB\nid: 7\n"
	s, err := load(t, file, []string{"PERIGEE_WAIT=3s", "PERIGEE_CONTROLLER=a:1,b:2", "PERIGEE_AUTO_CREATE=false", "HOME=/"}, "--grpc-addr", "flag:1")
	require.NoError(t, err)
	require.Equal(t, "flag:1", s.Addr)
	require.Equal(t, 3*time.Second, s.Wait)
	require.Equal(t, Bytes(1<<20), s.Size)
	require.Equal(t, []string{"a:1", "b:2"}, s.Peers)
	require.False(t, s.Auto)
	require.EqualValues(t, 7, s.ID)
	require.Equal(t, "127.0.0.1:8081", s.Server)
}

func TestUnknownKeysAreErrors(t *testing.T) {
	_, err := load(t, "grpc-adr: x\n", nil)
	require.ErrorContains(t, err, "grpc-adr")
	_, err = load(t, "", []string{"PERIGEE_GRPC_ADR=x"})
	require.ErrorContains(t, err, "PERIGEE_GRPC_ADR")
	_, err = load(t, "", []string{"PERIGEE_TOPIC=x"})
	require.NoError(t, err, "the setting of another command is no error")
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "12": 12, "1 KiB": 1024, "64MiB": 64 << 20, "2GiB": 2 << 30} {
		var b Bytes
		require.NoError(t, b.Set(text), text)
		require.Equal(t, want, b, text)
		var again Bytes
		require.NoError(t, again.Set(b.String()))
		require.Equal(t, b, again)
	}
	for _, text := range []string{"", "x", "-1", "1MB", "9999999999TiB"} {
		var b Bytes
		require.Error(t, b.Set(text), text)
	}
}

func TestEmptyVariablesAreNotSet(t *testing.T) {
	s, err := load(t, "server: file:1\n", []string{"PERIGEE_SERVER=", "PERIGEE_WAIT=", "PERIGEE_NOBODY="})
	require.NoError(t, err)
	require.Equal(t, "file:1", s.Server)
	require.Equal(t, time.Second, s.Wait)
	s, err = load(t, "", []string{"PERIGEE_SERVER=a="})
	require.NoError(t, err)
	require.Equal(t, "a=", s.Server)
}

// TestOneParser: a text means the same in the file, the environment and on the command line.
func TestOneParser(t *testing.T) {
	for _, c := range []struct{ key, value, wrong string }{
		{"wait", "5", "duration"},
		{"wait", "soon", "duration"},
		{"id", "-1", "integer"},
		{"id", "1.9", "integer"},
		{"id", "4294967296", "integer"},
		{"segment-bytes", "1MB", "KiB"},
		{"auto-create", "perhaps", "true or false"},
	} {
		t.Run(c.key+" "+c.value, func(t *testing.T) {
			_, err := load(t, "server: x\n"+c.key+": "+c.value+"\n", nil)
			require.ErrorContains(t, err, "p.yaml, line 2: "+c.key+": \""+c.value+"\": ")
			require.ErrorContains(t, err, c.wrong)
			_, err = load(t, c.key+": "+c.value, []string{EnvName(c.key) + "=" + c.value})
			require.ErrorContains(t, err, "environment: "+EnvName(c.key)+": \""+c.value+"\": ")
			s := defaults()
			flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
			AddFlags(flags, &s)
			require.Error(t, flags.Parse([]string{"--" + c.key + "=" + c.value}))
		})
	}
}

// TestFileValues are kept as they are written.
func TestFileValues(t *testing.T) {
	s, err := load(t, "# a comment\n---\nserver: 007\ngrpc-addr: 2026-01-31T12:00:00Z\nauto-create: false\ncontroller: [a:1, 2.50]\nwait:\n", nil)
	require.NoError(t, err)
	require.Equal(t, "007", s.Server)
	require.Equal(t, "2026-01-31T12:00:00Z", s.Addr)
	require.False(t, s.Auto)
	require.Equal(t, []string{"a:1", "2.50"}, s.Peers)
	require.Equal(t, time.Second, s.Wait, "a key without a value is not set")

	s, err = load(t, "note: [\"a, b\", c]", nil)
	require.NoError(t, err)
	require.Equal(t, Texts{"a, b", "c"}, s.Notes)
	s, err = load(t, "note: x", []string{"PERIGEE_NOTE=a, b"})
	require.NoError(t, err)
	require.Equal(t, Texts{"a, b"}, s.Notes)
	s, err = load(t, "note: x", nil, "--note", "a, b", "--note", "c")
	require.NoError(t, err)
	require.Equal(t, Texts{"a, b", "c"}, s.Notes)
	s, err = load(t, "controller: a:1,b:2", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, s.Peers)
	s, err = load(t, "controller: &x [a:1]\nserver: *x\n", nil)
	require.ErrorContains(t, err, "line 2: server: takes one value")
	require.Equal(t, "127.0.0.1:8081", s.Server)
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n"} {
		s, err := load(t, text, nil)
		require.NoError(t, err)
		require.Equal(t, defaults(), s)
	}
}

func TestWrongFiles(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n":                            "line 1: write one `key: value` in each line",
		"grpc:\n  addr: x\n":               "line 2: grpc: settings are not nested",
		"controller: [[a]]\n":              "controller: a list of lists is no setting",
		"server: a\nserver: b\n":           "line 2: server is set twice, first in line 1",
		"server: [a, b]\n":                 "line 1: server: takes one value",
		"server: a\nsever: b\nconfig: c\n": "line 2: unknown setting sever: did you mean server?",
		"config: other.yaml\n":             "line 1: unknown setting config",
		"server: {\n":                      "line 1",
	} {
		_, err := load(t, text, nil)
		require.ErrorContains(t, err, "p.yaml", text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := load(t, "a: 1\nb: 2\n", []string{"PERIGEE_C=3"})
	for _, name := range []string{"line 1: unknown setting a", "line 2: unknown setting b", "environment: unknown setting PERIGEE_C"} {
		require.ErrorContains(t, err, name, "all that is wrong is said at once")
	}
}

func TestFileThatTheEnvironmentNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "named.yaml")
	require.NoError(t, os.WriteFile(path, []byte("server: named:1\n"), 0o600))
	s, err := load(t, "", []string{"PERIGEE_CONFIG=" + path})
	require.NoError(t, err)
	require.Equal(t, "named:1", s.Server)
	s, err = load(t, "server: given:1\n", []string{"PERIGEE_CONFIG=" + path})
	require.NoError(t, err)
	require.Equal(t, "given:1", s.Server, "--config wins")
	_, err = load(t, "", []string{"PERIGEE_CONFIG=/nosuch/file"})
	require.ErrorContains(t, err, "settings file /nosuch/file")
}

// TestGiven: a command can ask whether somebody set a flag, wherever.
func TestGiven(t *testing.T) {
	s := defaults()
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(flags, &s)
	require.NoError(t, flags.Parse([]string{"--id", "1"}))
	require.NoError(t, Load(flags, Source{Environ: []string{"PERIGEE_WAIT=1s", "PERIGEE_SERVER="}}))
	require.True(t, flags.Changed("id"), "also if it is the default's value")
	require.True(t, flags.Changed("wait"))
	require.False(t, flags.Changed("server"))
}

func TestNearest(t *testing.T) {
	keys := []string{"server", "grpc-addr", "http-addr", "id", "log-level"}
	for wrong, want := range map[string]string{
		"sever": "server", "grpc-adr": "grpc-addr", "grpcaddr": "grpc-addr", "loglevel": "log-level", "zzzzzz": "", "": "", "di": "", "serverr": "server",
	} {
		require.Equal(t, want, Nearest(wrong, keys), wrong)
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte("server: a\ncontroller: [a, b]\nwait:\n"))
	f.Add([]byte("a: &x {b: *x}\n"))
	f.Add([]byte("a: &x [*x]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &page{lines: map[string]int{}}
		m, err := p.Unmarshal(b)
		if err != nil {
			return
		}
		for key, v := range m {
			switch v.(type) {
			case string, []string:
			default:
				t.Fatalf("%s: %T", key, v)
			}
			if p.lines[key] == 0 {
				t.Fatalf("%s has no line", key)
			}
		}
	})
}
