package repl

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Field numbers of Batch, and its own in ReplicateResponse.
const (
	batchField = 2

	sessionField     = 1
	epochField       = 2
	startField       = 3
	endField         = 4
	recordEpochField = 5
	confirmField     = 6
	fileEndsField    = 7
	recordsField     = 8
)

// batch is one message Batch, with its records as bytes that are not copied through protobuf code.
type batch struct {
	follower.Batch
	files   []record.Pos
	records []byte
}

// chunk is what is to be appended to a log.
func (b *batch) chunk() commitlog.Chunk {
	return commitlog.Chunk{Start: b.Start, End: b.End, Epoch: b.RecordEpoch, Bytes: b.records, Segments: b.files}
}

// outgoing is a batch to be sent; gRPC frees its records.
type outgoing struct {
	batch
	buffer mem.Buffer
}

// EncodeRaw returns a ReplicateResponse with the batch.
func (o *outgoing) EncodeRaw() (mem.BufferSlice, error) {
	in := make([]byte, 0, 96+10*len(o.files))
	for _, f := range []struct {
		number protowire.Number
		value  uint64
	}{
		{sessionField, uint64(o.Session)},
		{epochField, uint64(o.Epoch)},
		{startField, uint64(o.Start)},
		{endField, uint64(o.End)},
		{recordEpochField, uint64(o.RecordEpoch)},
		{confirmField, uint64(o.Confirm)},
	} {
		in = protowire.AppendTag(in, f.number, protowire.VarintType)
		in = protowire.AppendVarint(in, f.value)
	}
	size := 0
	for _, end := range o.files {
		size += protowire.SizeVarint(uint64(end))
	}
	in = protowire.AppendTag(in, fileEndsField, protowire.BytesType)
	in = protowire.AppendVarint(in, uint64(size))
	for _, end := range o.files {
		in = protowire.AppendVarint(in, uint64(end))
	}
	in = protowire.AppendTag(in, recordsField, protowire.BytesType)
	in = protowire.AppendVarint(in, uint64(o.buffer.Len()))

	head := make([]byte, 0, 16+len(in))
	head = protowire.AppendTag(head, batchField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(in)+o.buffer.Len()))
	return mem.BufferSlice{mem.SliceBuffer(append(head, in...)), o.buffer}, nil
}

// incoming is what a follower received: a batch, or something else. Its memory is used again after free.
type incoming struct {
	isBatch bool
	batch   batch
	said    replicationv1.ReplicateResponse
	memory  *[]byte
}

// DecodeRaw reads a ReplicateResponse.
func (m *incoming) DecodeRaw(data mem.BufferSlice) error {
	m.memory = memories.take(data.Len())
	b := (*m.memory)[:data.Len()]
	data.CopyTo(b)
	number, kind, n := protowire.ConsumeTag(b)
	if n > 0 && number == batchField && kind == protowire.BytesType {
		if in, k := protowire.ConsumeBytes(b[n:]); k >= 0 && n+k == len(b) {
			m.isBatch = true
			return m.batch.decode(in)
		}
	}
	if err := proto.Unmarshal(b, &m.said); err != nil {
		return mqerr.New(mqerr.Invalid, "what a master sent is no message: %w", err)
	}
	if p := m.said.GetBatch(); p != nil { // in a form that we do not write
		m.isBatch, m.batch = true, batchOf(p)
	}
	return nil
}

// free gives the memory back. The records must not be used afterwards.
func (m *incoming) free() {
	if m.memory != nil {
		memories.give(m.memory)
	}
	m.memory, m.batch.records = nil, nil
}

// decode reads the fields of a batch. The records alias b.
func (d *batch) decode(b []byte) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return badBatch(n)
		}
		b = b[n:]
		switch {
		case kind == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return badBatch(n)
			}
			d.set(number, v)
			b = b[n:]
		case kind == protowire.BytesType && (number == fileEndsField || number == recordsField):
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return badBatch(n)
			}
			if number == recordsField {
				d.records = v
			} else if err := d.addFiles(v); err != nil {
				return err
			}
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				return badBatch(n)
			}
			b = b[n:]
		}
	}
	return nil
}

func badBatch(n int) error {
	return mqerr.New(mqerr.Invalid, "a batch of records that is no message: %w", protowire.ParseError(n))
}

func (d *batch) set(number protowire.Number, v uint64) {
	switch number {
	case sessionField:
		d.Session = quorum.Session(v)
	case epochField:
		d.Epoch = record.Epoch(v)
	case startField:
		d.Start = record.Pos(v)
	case endField:
		d.End = record.Pos(v)
	case recordEpochField:
		d.RecordEpoch = record.Epoch(v)
	case confirmField:
		d.Confirm = record.Pos(v)
	case fileEndsField:
		d.files = append(d.files, record.Pos(v))
	}
}

func (d *batch) addFiles(b []byte) error {
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return badBatch(n)
		}
		d.files = append(d.files, record.Pos(v))
		b = b[n:]
	}
	return nil
}

// Memory of chunks.
const (
	// chunkBytes is how much of records goes into one batch, if the batches in the log are no larger.
	chunkBytes = 512 << 10
	// lendBytes is the size from which on a chunk's memory goes to gRPC as it is. Less is copied, so that little
	// that waits for the network does not hold much memory.
	lendBytes = 64 << 10
)

// pool keeps memory for chunks.
type pool struct{ sync.Pool }

var memories = &pool{sync.Pool{New: func() any { b := make([]byte, 0, chunkBytes+16<<10); return &b }}}

func (p *pool) take(n int) *[]byte {
	b := p.Pool.Get().(*[]byte)
	if cap(*b) < n {
		p.give(b)
		big := make([]byte, 0, n)
		return &big
	}
	return b
}

func (p *pool) give(b *[]byte) {
	if cap(*b) >= chunkBytes && cap(*b) <= 4*chunkBytes {
		*b = (*b)[:0]
		p.Pool.Put(b)
	}
}

// lender gives memory back that gRPC has written.
type lender struct{}

// Get is not used: only what is sent is lent.
func (lender) Get(n int) *[]byte { return memories.take(n) }

// Put takes memory back.
func (lender) Put(b *[]byte) { memories.give(b) }
