package mqerr

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKindIsFoundThroughWrapping(t *testing.T) {
	cause := New(DiskFull, "disk of %s: %w", "a", io.ErrShortWrite)
	err := fmt.Errorf("send: %w", cause)
	require.Equal(t, DiskFull, KindOf(err))
	require.True(t, Is(err, DiskFull))
	require.False(t, Is(err, Internal))
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.Equal(t, "send: disk of a: short write", err.Error())
}

func TestUnclassifiedIsInternal(t *testing.T) {
	require.Equal(t, Internal, KindOf(errors.New("x")))
	require.False(t, Is(nil, Internal), "no error has no kind")
}

func TestEveryKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		require.NotEmpty(t, k.String())
		require.False(t, seen[k.String()], k.String())
		seen[k.String()] = true
	}
	require.Equal(t, "kind 200", Kind(200).String())
}
