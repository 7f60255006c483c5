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
}

func defaults() settings {
	return settings{common: common{Server: "127.0.0.1:8081"}, Addr: "127.0.0.1:1", Auto: true, Wait: time.Second, Size: 64 << 20, Peers: []string{}, ID: 1}
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
	err := Load(&s, Source{File: path, Environ: env, Known: []string{"topic"}, Flags: flags})
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
		require.NoError(t, b.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, b, text)
		var again Bytes
		require.NoError(t, again.UnmarshalText([]byte(b.String())))
		require.Equal(t, b, again)
	}
	for _, text := range []string{"", "x", "-1", "1MB", "9999999999TiB"} {
		var b Bytes
		require.Error(t, b.UnmarshalText([]byte(text)), text)
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
