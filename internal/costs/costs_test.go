package costs

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

var update = flag.Bool("update", false, "write costs.tsv")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const file = "costs.tsv"

// TestCosts: no message costs more than a tenth above what is written down.
func TestCosts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and empties pools")
	}
	// One thread and no collection: what runs together, and what is pooled, is the same each time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var lines []string
	is := map[string][]float64{}
	for _, c := range cases {
		got := c.count(t)
		lines = append(lines, got.line(c.what))
		is[c.what] = got.values()
	}
	text := head + "\n" + strings.Join(lines, "\n") + "\n"
	t.Logf("\n%s", text)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	was := table(t, file)
	require.Len(t, was, len(cases), "go test ./internal/costs -update")
	for _, c := range cases {
		require.Len(t, was[c.what], 4, c.what)
		for _, i := range dearer(was[c.what], is[c.what]) {
			t.Errorf("%s: %s rose from %v to %.3f a message; if that is worth it: go test ./internal/costs -update, and say why in the commit",
				c.what, strings.Split(head, "\t")[i+1], was[c.what][i], is[c.what][i])
		}
	}
}

func TestDearer(t *testing.T) {
	was := []float64{1, 100, 0, 1000}
	require.Empty(t, dearer(was, was))
	require.Empty(t, dearer(was, []float64{1.1, 110, 0.01, 1}))
	require.Equal(t, []int{0, 1, 2, 3}, dearer(was, []float64{1.11, 111, 0.02, 1101}))
	require.Empty(t, dearer([]float64{0, 0, 0, 0}, []float64{0.005, 0.5, 0.005, 0.5}))
}

// cases are what is counted, for one message.
var cases = []struct {
	what  string
	count func(*testing.T) cost
}{
	{"encode", encode},
	{"append, 64 at once", appendLog},
	{"send, one caller", sends(topicAsync, 1, 1)},
	{"send, 64 callers", sends(topicAsync, callers, 1)},
	{"send, 64 callers, flushed", sends(topicSync, callers, 1)},
	{"send, 32 in a request", sends(topicAsync, 1, batch)},
	{"receive, 32 at once", func(t *testing.T) cost {
		b := newBroker(t)
		const times = 32
		return b.per(times*batch, func() { b.fill(times * batch); b.leased = make([]brokerapi.Handle, 0, times*batch) }, func() { b.receive(times) })
	}},
	{"ack, one in a request", acks(1)},
	{"ack, 32 in a request", acks(batch)},
}

// encode makes records of messages.
func encode(*testing.T) cost {
	m := &record.Msg{Topic: 1, ID: make([]byte, 16), Body: make([]byte, bodyBytes), User: make([]byte, 128)}
	n := record.MsgSize(m)
	rec := make([]byte, record.Total(n))
	end := int64(0)
	c := meter{end: func() int64 { return end }}
	return c.per(1000, nil, func() {
		for range 1000 {
			record.PutMsg(rec[record.HeaderSize:record.HeaderSize+n], m)
			record.Seal(rec, &record.Header{Type: record.TypeMsg, Size: uint32(len(rec)), Tail: uint16(len(rec) - record.HeaderSize - n)})
			end += int64(len(rec))
		}
	})
}

// appendLog appends batches of records.
func appendLog(t *testing.T) cost {
	fs := faultfs.Wrap(vfs.OS)
	l, err := commitlog.Open(commitlog.Options{FS: fs, Dir: t.TempDir(), SegmentBytes: 256 << 20})
	require.NoError(t, err)
	_, err = l.Recover(l.First(), func(record.Record) error { return nil })
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	b, body := l.NewBatch(), make([]byte, bodyBytes)
	m := meter{fs: fs, end: func() int64 { return int64(l.Written()) }}
	return m.per(16*callers, nil, func() {
		for range 16 {
			b.Reset()
			for range callers {
				_, dst := b.Begin(record.Header{Type: record.TypeMsg, Epoch: 1, Time: 1}, len(body))
				copy(dst, body)
				b.Seal()
			}
			if err := l.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func sends(topic brokerapi.TopicID, callers, n int) func(*testing.T) cost {
	return func(t *testing.T) cost {
		b := newBroker(t)
		const times = 32
		return b.per(times*callers*n, nil, func() {
			for range times {
				b.send(topic, callers, n)
			}
		})
	}
}

func acks(n int) func(*testing.T) cost {
	return func(t *testing.T) cost {
		b := newBroker(t)
		const times = 8
		return b.per(times*batch, func() { b.fill(times * batch); b.receive(times) }, func() { b.ack(n) })
	}
}
