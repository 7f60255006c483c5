package engine

import (
	"encoding/binary"
	"math"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// bound is what offsets a queue has.
type bound struct {
	Key    queue.Key
	Lo, Hi record.QueueOffset
}

func (v *views) encodeBounds() []byte {
	keys := v.queues.Keys()
	dst := binary.AppendUvarint(nil, uint64(len(keys)))
	for _, k := range keys {
		lo, hi := v.queues.Bounds(k)
		for _, n := range []uint64{uint64(k.Topic), uint64(k.Queue), uint64(lo), uint64(hi - lo)} {
			dst = binary.AppendUvarint(dst, n)
		}
	}
	return dst
}

func decodeBounds(b []byte) ([]bound, error) {
	bad := false
	num := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	var all []bound
	for n := num(uint64(len(b)) / 4); n > 0 && !bad; n-- {
		k := queue.Key{Topic: record.TopicID(num(math.MaxUint32)), Queue: record.QueueID(num(math.MaxInt32))}
		lo := record.QueueOffset(num(1 << 60))
		all = append(all, bound{k, lo, lo + record.QueueOffset(num(1<<60))})
	}
	if bad || len(b) > 0 {
		return nil, mqerr.New(mqerr.Corrupt, "bounds of queues that cannot be decoded")
	}
	return all, nil
}

// eachLate calls fn for the entries of [from, to) of a queue whose messages stand below pos.
func (v *views) eachLate(k queue.Key, from, to record.QueueOffset, pos record.Pos, fn func(off record.QueueOffset, e *queue.Entry) error) error {
	var buf [256]queue.Entry
	for from < to {
		n, err := v.queues.Read(k, from, buf[:min(len(buf), int(to-from))])
		if err != nil || n == 0 {
			return err
		}
		for i := range n {
			if buf[i].Pos < pos {
				if err := fn(from+record.QueueOffset(i), &buf[i]); err != nil {
					return err
				}
			}
		}
		from += record.QueueOffset(n)
	}
	return nil
}
