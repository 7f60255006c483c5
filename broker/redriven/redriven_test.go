package redriven

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// TestAgainstASet: the table is a set of offsets for each queue.
func TestAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := New(), map[Key]map[record.QueueOffset]bool{}
		key := rapid.Custom(func(t *rapid.T) Key {
			return Key{Topic: record.TopicID(rapid.IntRange(1, 2).Draw(t, "topic")), Queue: record.QueueID(rapid.IntRange(0, 1).Draw(t, "queue"))}
		})
		offset := rapid.Custom(func(t *rapid.T) record.QueueOffset {
			return record.QueueOffset(rapid.IntRange(0, 40).Draw(t, "offset"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k, off := key.Draw(t, "key"), offset.Draw(t, "off")
				err := table.Add(k, off)
				if model[k][off] != (err != nil) || err != nil && !mqerr.Is(err, mqerr.Corrupt) {
					t.Fatalf("add %v %d: %v", k, off, err)
				}
				if model[k] == nil {
					model[k] = map[record.QueueOffset]bool{}
				}
				model[k][off] = true
			},
			"drop": func(t *rapid.T) {
				id := key.Draw(t, "key").Topic
				table.DropTopic(id)
				for k := range model {
					if k.Topic == id {
						delete(model, k)
					}
				}
			},
			"restart": func(t *rapid.T) {
				b := table.Encode(nil)
				table = New()
				if err := table.Decode(b); err != nil || !bytes.Equal(b, table.Encode(nil)) {
					t.Fatalf("%x: %v", b, err)
				}
			},
			"": func(t *rapid.T) {
				k, lo, hi := key.Draw(t, "key"), offset.Draw(t, "lo"), offset.Draw(t, "hi")
				n, next := int64(0), lo
				for off := lo; off < hi; off++ {
					if model[k][off] {
						n++
					}
				}
				for model[k][next] {
					next++
				}
				if table.Count(k, lo, hi) != n || table.Has(k, lo) != model[k][lo] || table.Next(k, lo) != next || table.Empty() != (len(model) == 0) {
					t.Fatalf("%v from %d to %d: %d, has %v, next %d, want %d, %v, %d", k, lo, hi, table.Count(k, lo, hi), table.Has(k, lo), table.Next(k, lo), n, model[k][lo], next)
				}
			},
		})
	})
}

// FuzzDecode: any bytes are refused or make a table that encodes to them.
func FuzzDecode(f *testing.F) {
	table := New()
	for _, off := range []record.QueueOffset{0, 1, 5, 9, 8} {
		if err := table.Add(Key{7, 0}, off); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(table.Encode(nil))
	f.Add(New().Encode(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		table := New()
		if err := table.Decode(b); err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
				t.Fatal(err)
			}
			return
		}
		if again := table.Encode(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
