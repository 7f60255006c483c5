package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	got, err := parse("# list\n\nmutation a b\nfile x.go\n-\told\n-\told2\n+\tnew\ntest ./x -run TestX\ntest ./y\n")
	require.NoError(t, err)
	require.Equal(t, []mutation{{
		name: "a b", file: "x.go", old: "\told\n\told2\n", new: "\tnew\n", tests: [][]string{{"./x", "-run", "TestX"}, {"./y"}},
	}}, got)
	for _, bad := range []string{
		"file x.go\n", "mutation a\n", "mutation a\nfile x\ntest y\n", "mutation a\nfile x\n-old\n",
		"mutation a\nnonsense\n", "mutation a\nfile x\n-o\ntest y\nmutation a\nfile x\n-o\ntest y\n",
	} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
}

// TestListFollowsTheCode: each mutation's lines stand in its file, once.
func TestListFollowsTheCode(t *testing.T) {
	text, err := os.ReadFile("mutations.txt")
	require.NoError(t, err)
	all, err := parse(string(text))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 15)
	for _, m := range all {
		src, err := os.ReadFile(filepath.Join("..", "..", m.file))
		require.NoError(t, err, m.name)
		require.Equal(t, 1, strings.Count(string(src), m.old), m.name)
	}
}
