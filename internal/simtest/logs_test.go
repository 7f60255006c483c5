package simtest

import (
	"bytes"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
)

// settle waits until all replicas have written the same.
func (s *sim) settle() {
	for range 200 {
		equal := true
		for _, p := range s.brokers {
			equal = equal && s.disks[p].broker.Written() == s.disks[s.brokers[0]].broker.Written()
		}
		if equal {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.fail("A8: the replicas do not come to the same end of their logs")
}

// sameLogs compares the logs of all replicas byte by byte, from where the last of them begins (A8).
func (s *sim) sameLogs() {
	files := func(p *process) map[string][]byte {
		dir, out := "/data/"+store.LogDir, map[string][]byte{}
		names, err := s.disks[p].fs.List(dir)
		if err != nil {
			s.fail("A8: %s: %v", p.name, err)
		}
		for _, n := range names {
			if b, err := vfs.ReadFile(s.disks[p].fs, dir+"/"+n); err == nil && strings.HasPrefix(n, "0") {
				out[n] = b
			}
		}
		return out
	}
	first := files(s.brokers[0])
	for _, p := range s.brokers[1:] {
		common := 0
		for n, b := range files(p) {
			a, is := first[n]
			if !is {
				continue
			}
			common++
			if !bytes.Equal(a, b) {
				s.fail("A8: %s and %s differ in %s", s.brokers[0].name, p.name, n)
			}
		}
		if common == 0 {
			s.fail("A8: %s and %s have no file of the log in common", s.brokers[0].name, p.name)
		}
	}
}
