// Package storetest is for tests that need a store: temporary directories on the machine's disk and in
// memory, sample messages, a small owner of a store that writes them, and the suite that every file
// system must pass.
package storetest

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Backends runs a test once for each kind of file system, with a directory that does not exist yet.
func Backends(t *testing.T, run func(t *testing.T, fs vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { run(t, vfs.OS, t.TempDir()+"/data") })
	t.Run("memory", func(t *testing.T) { run(t, memfs.New(), "data") })
}

// Message is the message with offset off of a queue. Equal arguments give equal messages; sizes vary.
func Message(k queue.Key, off record.QueueOffset) record.Msg {
	n := uint64(k.Topic)<<40 ^ uint64(k.Queue)<<32 ^ uint64(off)
	body := make([]byte, 1+(n*7919)%700)
	for i := range body {
		body[i] = byte(n) + byte(i)
	}
	m := record.Msg{
		Topic: k.Topic, Queue: k.Queue, Offset: off, Type: record.MsgNormal, Digest: md5.Sum(body), Body: body,
		ID:   fmt.Appendf(nil, "01%032X", n),
		User: []byte("\x12\x08\x0a\x01k\x12\x03val"), Sys: []byte("\x0a\x01t"),
	}
	if off%3 > 0 {
		m.TagHash = 1 + uint64(off%3)
	}
	if off%5 == 0 {
		m.Type, m.GroupHash = record.MsgFIFO, binary.LittleEndian.Uint64(m.Digest[:])
	}
	return m
}

// EntryOf is the queue entry of a stored message.
func EntryOf(h *record.Header, m *record.Msg) queue.Entry {
	return queue.Entry{Pos: h.Pos, Size: h.Size, Time: h.Time, TagHash: m.TagHash, GroupHash: m.GroupHash}
}
