package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestPageFollowsTheTests: every line of the page names a test that is there and says so itself.
func TestPageFollowsTheTests(t *testing.T) {
	all, err := collect(root)
	require.NoError(t, err)
	require.Greater(t, len(all), 20)
	have, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	want, err := put(string(have), list(all))
	require.NoError(t, err)
	require.Equal(t, want, string(have), "docs/reliability.md is not what the tests say: make faults")
}

func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []fault
		bad  string
	}{
		"two": {
			src: "// TestA does.\n//\n//fault:power the power | goes => all holds\n//fault:kill it dies => it lives\nfunc TestA(t *testing.T) {}\n",
			want: []fault{
				{"power", "b TestA", "the power | goes", "all holds"},
				{"kill", "b TestA", "it dies", "it lives"},
			},
		},
		"none":         {src: "// TestA has no fault: none at all.\nfunc TestA(t *testing.T) {}\n"},
		"a helper":     {src: "//fault:power a => b\nfunc helper() {}\n", bad: "no test"},
		"nowhere":      {src: "//fault:power a => b\n\nfunc TestA(t *testing.T) {}\n", bad: "no test"},
		"unknown kind": {src: "//fault:moon a => b\nfunc TestA(t *testing.T) {}\n", bad: "no kind"},
		"no result":    {src: "//fault:power it goes\nfunc TestA(t *testing.T) {}\n", bad: "form"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "b"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "b", "a_test.go"), []byte("package b\n\n"+c.src), 0o600))
			got, err := collect(dir)
			if c.bad != "" {
				require.ErrorContains(t, err, c.bad)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txtar"), []byte("# fault:operator a typo => it is refused\nexec x\n"), 0o600))
	got, err := collect(dir)
	require.NoError(t, err)
	require.Equal(t, []fault{{"operator", "a.txtar", "a typo", "it is refused"}}, got)
}

func TestPage(t *testing.T) {
	text := "head\n" + begin + "old\n" + end + "tail\n"
	got, err := put(text, list([]fault{{"kill", "b TestA", "it | dies", "it lives"}}))
	require.NoError(t, err)
	require.Equal(t, "head\n"+begin+"\n### Processes that are killed\n\n| what happens | what holds | test |\n| --- | --- | --- |\n| it \\| dies | it lives | `b TestA` |\n\n"+end+"tail\n", got)
	_, err = put("head\n"+begin, "x")
	require.Error(t, err)
}
