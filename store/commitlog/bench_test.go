package commitlog_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

const (
	benchBatch = 64
	benchBody  = 1160
)

// fill makes a batch of records as the broker does.
func fill(b *commitlog.Batch, body []byte) {
	b.Reset()
	for range benchBatch {
		_, dst := b.Begin(record.Header{Type: record.TypeMsg, Epoch: 1, Time: 1}, len(body))
		copy(dst, body)
		b.Seal()
	}
}

// TestAllocations: nothing is allocated for a record on the way in and on the hot way out.
func TestAllocations(t *testing.T) {
	o := options(vfs.OS)
	o.Dir, o.SegmentBytes = t.TempDir(), 64<<20
	l, _ := mustStart(t, o)
	b, data := l.NewBatch(), make([]byte, benchBody)
	fill(b, data)
	require.NoError(t, l.Write(b))
	require.Zero(t, testing.AllocsPerRun(50, func() {
		fill(b, data)
		if err := l.Write(b); err != nil {
			t.Fatal(err)
		}
	}), "write")
	size := uint32(record.Total(benchBody))
	require.Zero(t, testing.AllocsPerRun(50, func() {
		_, ref, err := l.Read(0, size)
		if err != nil {
			t.Fatal(err)
		}
		ref.Release()
	}), "read")
}

// BenchmarkAppend compares appending batches of 64 records with a bare pwrite of as many bytes into an
// allocated file, turn by turn; x/pwrite is the ratio of the two.
func BenchmarkAppend(b *testing.B) {
	const segBytes = 256 << 20
	l, _ := mustStart(b, commitlog.Options{Dir: b.TempDir(), SegmentBytes: segBytes})
	batch, body := l.NewBatch(), make([]byte, benchBody)
	fill(batch, body)
	raw := make([]byte, batch.Size())
	bare := newBare(b, segBytes)
	var logTime, bareTime time.Duration
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		bare.write(b, raw)
		middle := time.Now()
		fill(batch, body)
		if err := l.Write(batch); err != nil {
			b.Fatal(err)
		}
		bareTime += middle.Sub(began)
		logTime += time.Since(middle)
	}
	b.ReportMetric(float64(logTime)/float64(bareTime), "x/pwrite")
	b.ReportMetric(float64(logTime.Nanoseconds())/float64(b.N*benchBatch), "ns/record")
}

// bare writes into one allocated file after the other.
type bare struct {
	dir  string
	size int64
	file vfs.File
	off  int64
}

func newBare(b *testing.B, size int64) *bare {
	w := &bare{dir: b.TempDir(), size: size}
	w.next(b)
	b.Cleanup(func() { w.file.Close() })
	return w
}

func (w *bare) next(b *testing.B) {
	name := filepath.Join(w.dir, "bare")
	if w.file != nil {
		w.file.Close()
		_ = os.Remove(name)
	}
	f, err := vfs.OS.Create(name)
	if err == nil {
		err = f.Allocate(w.size)
	}
	if err != nil {
		b.Fatal(err)
	}
	w.file, w.off = f, 0
}

func (w *bare) write(b *testing.B, data []byte) {
	if w.off+int64(len(data)) > w.size {
		w.next(b)
	}
	if _, err := w.file.WriteAt(data, w.off); err != nil {
		b.Fatal(err)
	}
	w.off += int64(len(data))
}

// BenchmarkReadHot reads verified records through the mapping.
func BenchmarkReadHot(b *testing.B) {
	l, _ := mustStart(b, commitlog.Options{Dir: b.TempDir(), SegmentBytes: 64 << 20})
	batch := l.NewBatch()
	fill(batch, make([]byte, benchBody))
	require.NoError(b, l.Write(batch))
	size := record.Total(benchBody)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, ref, err := l.Read(record.Pos(i%benchBatch*size), uint32(size))
		if err != nil {
			b.Fatal(err)
		}
		ref.Release()
	}
}
