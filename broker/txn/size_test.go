package txn

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/perigee-mq/perigee/store/record"
)

// heapBytes is what is in use after a collection.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemory: what the package comment says of an open half message and of a verdict holds.
func TestMemory(t *testing.T) {
	const n = 200_000
	before := heapBytes()
	tab := New(Options{})
	for i := range n {
		h := Half{Pos: record.Pos(8 * (i + 1)), Topic: 1, Stored: 1, Next: 2, ID: IDOf(binary.AppendUvarint(nil, uint64(i)))}
		if err := tab.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	open := (heapBytes() - before) / n
	before = heapBytes()
	for i := range n {
		if err := tab.End(&record.TxnEnd{RolledBack: []record.Pos{record.Pos(8 * (i + 1))}}, 5); err != nil {
			t.Fatal(err)
		}
	}
	ended := (heapBytes() - before) / n
	t.Logf("%d bytes an open half message, %d a verdict", open, ended)
	if open > 200 || ended > 140 {
		t.Errorf("%d bytes an open half message, %d a verdict: more than it should be", open, ended)
	}
	runtime.KeepAlive(tab)
}
