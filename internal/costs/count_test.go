package costs

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
)

// cost is what one message costs.
type cost struct {
	allocs float64 // objects
	heap   float64 // bytes allocated
	files  float64 // operations on files: system calls
	log    float64 // bytes of log
}

const head = "what\tallocations\tbytes_allocated\tfile_operations\tlog_bytes"

func (c cost) values() []float64 { return []float64{c.allocs, c.heap, c.files, c.log} }

// line is a line of the table.
func (c cost) line(what string) string {
	var b strings.Builder
	b.WriteString(what)
	for _, v := range c.values() {
		fmt.Fprintf(&b, "\t%s", strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64))
	}
	return b.String()
}

// dearer tells which of the costs have risen by more than a tenth and by more than what is nothing: a hundredth of an
// allocation, an operation, or a byte.
func dearer(was, is []float64) (columns []int) {
	least := []float64{0.01, 1, 0.01, 1}
	for i := range is {
		if is[i] > was[i]*1.1 && is[i] > was[i]+least[i] {
			columns = append(columns, i)
		}
	}
	return columns
}

// table reads a file of lines as line makes them.
func table(t *testing.T, name string) map[string][]float64 {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	out := map[string][]float64{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if i == 0 {
			require.Equal(t, head, line)
			continue
		}
		fields := strings.Split(line, "\t")
		require.Len(t, fields, 5, line)
		for _, f := range fields[1:] {
			v, err := strconv.ParseFloat(f, 64)
			require.NoError(t, err, line)
			out[fields[0]] = append(out[fields[0]], v)
		}
	}
	return out
}

// meter counts for one process: nothing else may go on in it.
type meter struct {
	fs  *faultfs.FS  // nil: no files
	end func() int64 // of the log, nil: none
}

const (
	rounds = 15
	warm   = 3 // rounds before: buffers grow
)

// per returns the median over rounds of what a message costs when do runs, which handles n. prepare runs before each do
// and is not counted; nil: nothing.
func (m *meter) per(n int, prepare, do func()) cost {
	var all [4][]float64
	for i := range warm + rounds {
		if prepare != nil {
			prepare()
		}
		was := m.now()
		do()
		is := m.now()
		for j := range all {
			if i >= warm {
				all[j] = append(all[j], (is[j]-was[j])/float64(n))
			}
		}
	}
	var med [4]float64
	for j := range all {
		slices.Sort(all[j])
		med[j] = all[j][rounds/2]
	}
	return cost{med[0], med[1], med[2], med[3]}
}

func (m *meter) now() [4]float64 {
	files, end := 0, int64(0)
	if m.fs != nil {
		files = m.fs.Count(faultfs.Any, "")
	}
	if m.end != nil {
		end = m.end()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return [4]float64{float64(s.Mallocs), float64(s.TotalAlloc), float64(files), float64(end)}
}
