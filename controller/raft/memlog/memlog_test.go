package memlog

import (
	"testing"

	hraft "github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLog(t *testing.T) {
	m := New()
	is := func(m *Log, first, last uint64) {
		t.Helper()
		a, err := m.FirstIndex()
		require.NoError(t, err)
		b, err := m.LastIndex()
		require.NoError(t, err)
		require.Equal(t, [2]uint64{first, last}, [2]uint64{a, b})
	}
	is(m, 0, 0)
	for i := uint64(5); i < 10; i++ {
		require.NoError(t, m.StoreLog(&hraft.Log{Index: i, Term: i}))
	}
	require.NoError(t, m.SetUint64([]byte("term"), 7))
	is(m, 5, 9)
	f := m.Fork()
	require.NoError(t, f.DeleteRange(8, 9))
	require.NoError(t, f.DeleteRange(5, 5))
	require.NoError(t, f.SetUint64([]byte("term"), 8))
	is(f, 6, 7)
	is(m, 5, 9)
	var l hraft.Log
	require.NoError(t, m.GetLog(9, &l))
	require.EqualValues(t, 9, l.Term)
	require.ErrorIs(t, f.GetLog(9, &l), hraft.ErrLogNotFound)
	v, err := m.GetUint64([]byte("term"))
	require.NoError(t, err)
	require.EqualValues(t, 7, v)
	_, err = m.Get([]byte("vote"))
	require.EqualError(t, err, "not found", "the library looks at the text")
	require.NoError(t, f.DeleteRange(1, 7))
	is(f, 0, 0)
}
