package wire

import (
	"math"
	"time"
)

// Part is a sub-message of a request as the client wrote it, for passing on. A sub-message that
// occurs several times counts as all its occurrences one after the other.
type Part struct {
	one  []byte // content of the last occurrence
	n    int    // occurrences
	size int    // bytes of all of them
	in   place
}

// place says where the occurrences of a part are: the fields num of a message, or those within its
// fields outer.
type place struct {
	message []byte
	outer   int32 // 0: num is a field of message itself
	num     int32
}

func (p *Part) add(in place, data []byte) {
	p.one, p.in = data, in
	p.n++
	p.size += len(data)
}

// Present reports whether the sub-message is there at all.
func (p *Part) Present() bool { return p.n > 0 }

// Len is the number of bytes that Append adds.
func (p *Part) Len() int { return p.size }

// Append appends the content, without tag and length.
func (p *Part) Append(dst []byte) []byte {
	if p.n <= 1 {
		return append(dst, p.one...)
	}
	pieces := p.pieces()
	for b, ok := pieces.next(); ok; b, ok = pieces.next() {
		dst = append(dst, b...)
	}
	return dst
}

// Bytes returns the content: the request's own bytes, or a copy if it is in several pieces.
func (p *Part) Bytes() []byte {
	if p.n <= 1 {
		return p.one
	}
	return p.Append(make([]byte, 0, p.size))
}

// pieces goes through the occurrences of a part.
type pieces struct {
	one          []byte // the only occurrence, if single
	single       bool
	in           place
	outer, inner reader
}

func (p *Part) pieces() pieces {
	if p.n <= 1 {
		return pieces{one: p.one, single: p.n == 1}
	}
	it := pieces{in: p.in}
	if p.in.outer == 0 {
		it.inner.b = p.in.message
	} else {
		it.outer.b = p.in.message
	}
	return it
}

func (it *pieces) next() ([]byte, bool) {
	if it.single {
		it.single = false
		return it.one, true
	}
	var f field
	for {
		for it.inner.next(&f) {
			if f.is(it.in.num, typeBytes) {
				return f.data, true
			}
		}
		if !it.outer.next(&f) {
			return nil, false
		}
		if f.is(it.in.outer, typeBytes) {
			it.inner = reader{b: f.data}
		}
	}
}

// Resource is the name of a topic or a group.
type Resource struct {
	Part
	Namespace []byte
	Name      []byte
}

func (res *Resource) decode(in place, data []byte) error {
	res.add(in, data)
	r := reader{b: data}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.text(&res.Namespace, &f)
		case f.is(2, typeBytes):
			r.text(&res.Name, &f)
		}
	}
	return r.err
}

// Address schemes of the public protocol.
const (
	SchemeIPv4   = 1
	SchemeIPv6   = 2
	SchemeDomain = 3
)

// Endpoints is where a client has reached the service.
type Endpoints struct {
	Part
	Scheme    int32
	Addresses int
	// Bad is set if an address lacks its host or has a port outside 1..65535.
	Bad bool
}

func (e *Endpoints) decode(in place, data []byte) error {
	e.add(in, data)
	r := reader{b: data}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeVarint):
			e.Scheme = int32(f.val)
		case f.is(2, typeBytes):
			r.also(e.address(f.data))
		}
	}
	return r.err
}

func (e *Endpoints) address(b []byte) error {
	r := reader{b: b}
	var f field
	var host []byte
	var port int32
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.text(&host, &f)
		case f.is(2, typeVarint):
			port = int32(f.val)
		}
	}
	e.Addresses++
	e.Bad = e.Bad || len(host) == 0 || port < 1 || port > 65535
	return r.err
}

// Time is a Timestamp or a Duration: seconds and nanoseconds as written.
type Time struct {
	Seconds int64
	Nanos   int32
	Set     bool
}

func (t *Time) decode(b []byte) error {
	t.Set = true
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeVarint):
			t.Seconds = int64(f.val)
		case f.is(2, typeVarint):
			t.Nanos = int32(f.val)
		}
	}
	return r.err
}

// Bounds within which a time in milliseconds does not overflow: the years 1 to 9999 of a Timestamp.
const (
	minSeconds = -62_135_596_800
	maxSeconds = 253_402_300_799
)

// UnixMillis returns a Timestamp in milliseconds since 1970, rounded towards the past; false if it
// is outside the years 1 to 9999 or its nanoseconds are no part of a second.
func (t Time) UnixMillis() (int64, bool) {
	if t.Seconds < minSeconds || t.Seconds > maxSeconds || t.Nanos < 0 || t.Nanos >= 1e9 {
		return 0, false
	}
	return t.Seconds*1000 + int64(t.Nanos)/1e6, true
}

// Duration returns a Duration; one too long for a time.Duration becomes the longest.
func (t Time) Duration() time.Duration {
	const most = int64(math.MaxInt64/time.Second) - 3 // nanoseconds add up to 2.2 s
	switch {
	case t.Seconds >= most:
		return math.MaxInt64
	case t.Seconds <= -most:
		return math.MinInt64
	}
	return time.Duration(t.Seconds)*time.Second + time.Duration(t.Nanos)
}
