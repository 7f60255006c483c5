package state

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Secret is the key material of receipt handles. Its text form is hexadecimal; logs show nothing.
type Secret [16]byte

// MarshalText returns the hexadecimal form.
func (k Secret) MarshalText() ([]byte, error) { return hex16(k), nil }

// UnmarshalText reads the hexadecimal form.
func (k *Secret) UnmarshalText(b []byte) error { return unhex16((*[16]byte)(k), b) }

// String keeps the key out of texts.
func (k Secret) String() string { return "(secret)" }

func hex16(b [16]byte) []byte { return hex.AppendEncode(nil, b[:]) }

func unhex16(dst *[16]byte, text []byte) error {
	if len(text) != 32 {
		return fmt.Errorf("%d hexadecimal digits, want 32", len(text))
	}
	_, err := hex.Decode(dst[:], text)
	return err
}

// KeyRole is what a key is used for.
type KeyRole string

// Roles. Every key that is there is accepted.
const (
	KeyNext     KeyRole = "next"     // every proxy learns it before it is used
	KeyCurrent  KeyRole = "current"  // new handles are made with it
	KeyPrevious KeyRole = "previous" // handles made with it may still be out
)

// Key is one key of receipt handles.
type Key struct {
	ID      uint8   `json:"id"` // in the handle, 1 to 255
	Secret  Secret  `json:"secret"`
	AddedMS int64   `json:"added_ms"`
	Role    KeyRole `json:"role"`
}

// Keys are at most one key of each role, the current one first, then the others by age of role:
// previous, next.
type Keys []Key

// Get returns the key of a role.
func (k Keys) Get(role KeyRole) (Key, bool) {
	i := slices.IndexFunc(k, func(k Key) bool { return k.Role == role })
	if i < 0 {
		return Key{}, false
	}
	return k[i], true
}

func (k Keys) check(initialised bool) error {
	if !initialised {
		if len(k) != 0 {
			return fmt.Errorf("keys without a cluster")
		}
		return nil
	}
	if len(k) == 0 || k[0].Role != KeyCurrent {
		return fmt.Errorf("no current key")
	}
	ids, roles := map[uint8]bool{0: true}, map[KeyRole]bool{}
	for i, key := range k {
		if ids[key.ID] || roles[key.Role] {
			return fmt.Errorf("key %d (%s) is there twice", key.ID, key.Role)
		}
		if key.Role != KeyCurrent && key.Role != KeyPrevious && key.Role != KeyNext {
			return fmt.Errorf("key %d has the unknown role %q", key.ID, key.Role)
		}
		if key.Role == KeyPrevious && i != 1 || key.Role == KeyNext && i != len(k)-1 {
			return fmt.Errorf("keys are not in order")
		}
		ids[key.ID], roles[key.Role] = true, true
	}
	return nil
}

// RotateKey adds a key that will be the current one after UseKey. Between the two every proxy must
// have learnt it.
type RotateKey struct {
	Key   Secret `json:"key"`
	NowMS int64  `json:"now_ms"`
}

func (RotateKey) op() string { return "rotate_key" }

func (c RotateKey) apply(s *State, _ Version) (Result, []Event) {
	if s.cluster == "" {
		return refuse(mqerr.Unavailable, "the cluster has no keys yet")
	}
	if _, ok := s.keys.Get(KeyNext); ok {
		return refuse(mqerr.Exists, "a next key is there already")
	}
	id := s.keys[0].ID
	for {
		id = id%255 + 1
		if !slices.ContainsFunc(s.keys, func(k Key) bool { return k.ID == id }) {
			break
		}
	}
	s.keys = append(slices.Clone(s.keys), Key{ID: id, Secret: c.Key, AddedMS: c.NowMS, Role: KeyNext})
	return Result{Changed: true}, []Event{KeysChanged{Keys: s.keys}}
}

// UseKey makes the next key the current one, and the current one the previous one. It names the next
// key, so that it can be repeated.
type UseKey struct {
	ID uint8 `json:"id"`
}

func (UseKey) op() string { return "use_key" }

func (c UseKey) apply(s *State, _ Version) (Result, []Event) {
	next, ok := s.keys.Get(KeyNext)
	if !ok || next.ID != c.ID {
		return refuse(mqerr.NotFound, "key %d is not the next key", c.ID)
	}
	before := s.keys[0]
	next.Role, before.Role = KeyCurrent, KeyPrevious
	s.keys = Keys{next, before}
	return Result{Changed: true}, []Event{KeysChanged{Keys: s.keys}}
}
