package broker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestSurely: an answer is given if the lead was sure before and after it was found.
func TestSurely(t *testing.T) {
	gone := mqerr.New(mqerr.NotLeader, "gone")
	for name, c := range map[string]struct {
		sure  []error
		reads int
		want  error
	}{
		"both":   {[]error{nil, nil}, 1, nil},
		"before": {[]error{gone}, 0, gone},
		"after":  {[]error{nil, gone}, 1, gone},
	} {
		asked, reads := 0, 0
		got, err := surely(func() error { asked++; return c.sure[asked-1] }, func() (int, error) { reads++; return 7, nil })
		require.Equal(t, c.reads, reads, name)
		if c.want != nil {
			require.Equal(t, c.want, err, name)
			require.Zero(t, got, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, 7, got, name)
	}
}
