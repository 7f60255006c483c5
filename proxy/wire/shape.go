package wire

import "unicode/utf8"

// shape describes a sub-message whose fields nobody needs, as far as checking goes.
type shape struct {
	strings uint32           // bit n: field n is a string
	packed  uint32           // bit n: field n is a repeated enum, possibly packed
	parts   map[int32]*shape // sub-messages
}

// Shapes of the sub-messages that are checked and otherwise passed over or passed on.
var (
	plainShape      = &shape{} // numbers only: Timestamp, Duration
	digestShape     = &shape{strings: 1 << 2}
	deadLetterShape = &shape{strings: 1<<1 | 1<<2}
	addressShape    = &shape{strings: 1 << 1}
	endpointsShape  = &shape{parts: map[int32]*shape{2: addressShape}}
)

// check reads a message of a shape to its end and returns the first fault.
func check(b []byte, s *shape) error {
	r := reader{b: b}
	var f field
	for r.next(&f) {
		if f.typ != typeBytes {
			continue
		}
		if f.num < 32 && s.strings&(1<<f.num) != 0 && !utf8.Valid(f.data) {
			return ErrUTF8
		}
		if f.num < 32 && s.packed&(1<<f.num) != 0 {
			r.also(checkPacked(f.data))
		}
		if part := s.parts[f.num]; part != nil {
			r.also(check(f.data, part))
		}
	}
	return r.err
}

// checkPacked checks a packed list of varints.
func checkPacked(b []byte) error {
	for len(b) > 0 {
		_, n := varint(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
	}
	return nil
}
