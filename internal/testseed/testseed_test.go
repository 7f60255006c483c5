package testseed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChoose(t *testing.T) {
	now := time.Unix(1, 5)
	one, err := choose("TestA", "", now)
	require.NoError(t, err)
	again, err := choose("TestA", "", now.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, one, again, "the same test has the same seed each time")
	other, err := choose("TestB", "", now)
	require.NoError(t, err)
	require.NotEqual(t, one, other)

	fresh, err := choose("TestA", "random", now)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000_005, fresh)
	said, err := choose("TestA", "17", now)
	require.NoError(t, err)
	require.EqualValues(t, 17, said)
	_, err = choose("TestA", "often", now)
	require.Error(t, err)
}
