package engine

import (
	"testing"

	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// BenchmarkApply is what the views cost for one stored message, with the index and without it. The files of
// the index are written beside the writer and are not in it.
func BenchmarkApply(b *testing.B) {
	for _, name := range []string{"queue and index", "queue", "index"} {
		b.Run(name, func(b *testing.B) {
			st, err := store.Open(store.Options{FS: memfs.New(), Dir: "data", SegmentBytes: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			x := indexed{Store: st.Index()}
			m := record.Msg{Topic: 1, ID: []byte("01A5B2C3D4E5F60718293A4B5C6D7E8F90"), Sys: sysKeys("order-1234567"), Body: make([]byte, 1024)}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				pos := record.Pos(i * 1200)
				if name != "queue" {
					x.add(pos, int64(i), &m)
				}
				if name != "index" {
					if err := st.Queues().Append(queue.Key{Topic: 1}, record.QueueOffset(i), queue.Entry{Pos: pos, Size: 1200, Time: int64(i)}); err != nil {
						b.Fatal(err)
					}
				}
				i++
			}
		})
	}
}
