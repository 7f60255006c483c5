package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Most of what a server allocates lives for one request, so a collection is worth little unless much has been
// allocated since the last one. What a collection costs is what it has to look through: pointers, not bytes. The
// large tables have none. So garbage may grow by a constant and by twice what is looked through, at most by four
// times what is live: a process with 40 MiB of tables takes some 100 MiB and not 200, and nothing that is allocated
// pays for looking through more than half its own size.
const (
	// GCPercent is GOGC of servers until they know what is live, and the most it is later on.
	GCPercent = 400

	garbageBytes   = 48 << 20
	garbagePerScan = 2
	percentMin     = 10
	percentDiffers = 8 // one part in so many: less is not worth stopping the process for
)

// heap is what the last collection found, in bytes.
type heap struct {
	live  int64 // of the heap
	scan  int64 // of the heap, as far as it may hold pointers
	roots int64 // stacks and globals, which the runtime counts as well
}

// percent is the value for GOGC that lets garbage grow as far as is said above.
func (h heap) percent() int {
	all := h.live + h.roots
	if all <= 0 {
		return GCPercent
	}
	growth := garbageBytes + garbagePerScan*(h.scan+h.roots)
	return int(min(GCPercent, max(percentMin, growth*100/all)))
}

// pacer keeps GOGC where it belongs.
type pacer struct {
	samples   []metrics.Sample
	now       int // the percentage in force
	set       func(int)
	collected chan struct{} // has one after a collection
}

// mark is what a collection frees to say that it was.
type mark struct{ _ *mark }

// watch makes the end of each collection known until ctx ends: what there is to look through can be asked for then
// only, since what is allocated later counts as well.
func (p *pacer) watch(ctx context.Context) {
	runtime.AddCleanup(new(mark), func(p *pacer) {
		select {
		case p.collected <- struct{}{}:
		default:
		}
		if ctx.Err() == nil {
			p.watch(ctx)
		}
	}, p)
}

// newPacer returns nil if GOGC in the environment decides.
func newPacer() *pacer {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	p := &pacer{now: GCPercent, set: func(n int) { debug.SetGCPercent(n) }, collected: make(chan struct{}, 1)}
	for _, name := range []string{"/gc/heap/live:bytes", "/gc/scan/heap:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes"} {
		p.samples = append(p.samples, metrics.Sample{Name: name})
	}
	return p
}

// look sets the percentage anew if what is in use has changed. It belongs right behind a collection.
func (p *pacer) look() {
	metrics.Read(p.samples)
	v := [4]int64{}
	for i := range p.samples {
		if p.samples[i].Value.Kind() == metrics.KindUint64 {
			v[i] = int64(p.samples[i].Value.Uint64())
		}
	}
	p.see(heap{live: v[0], scan: v[1], roots: v[2] + v[3]})
}

func (p *pacer) see(h heap) {
	if next := h.percent(); next != p.now && max(next-p.now, p.now-next)*percentDiffers >= p.now {
		p.now = next
		p.set(next)
	}
}
