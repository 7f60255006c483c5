package sql92

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
)

// truth is one of the three truth values. AND is the least of them, OR the greatest.
type truth int8

const (
	no truth = iota - 1
	unknown
	yes
)

func (t truth) not() truth { return -t }

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// kind is what a value is.
type kind uint8

const (
	kindMissing kind = iota // NULL
	kindText
	kindInt
	kindFloat
	kindBool
)

// value is a constant, the value of a property, or that of a condition in parentheses.
type value struct {
	kind  kind
	yes   bool
	int   int64
	float float64
	text  []byte
}

func textValue(b []byte) value { return value{kind: kindText, text: b} }

func boolValue(t truth) value {
	if t == unknown {
		return value{}
	}
	return value{kind: kindBool, yes: t == yes}
}

func (v value) isNumber() bool { return v.kind == kindInt || v.kind == kindFloat }

// number reads v as a number; missing if it is none.
func (v value) number() value {
	switch v.kind {
	case kindText:
		return parseNumber(v.text)
	case kindInt, kindFloat:
		return v
	}
	return value{}
}

// numberMax bounds the text of a number in bytes.
const numberMax = 512

// parseNumber reads digits with a sign, a fraction and an exponent, as far as they are there; missing if
// b is anything else. A whole number beyond 64 bits is read as one with a fraction.
func parseNumber(b []byte) value {
	n, start, whole := 0, 0, true
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		n, start = 1, 1
	}
	for n < len(b) && digit(b[n]) {
		n++
	}
	digits := n - start
	if n < len(b) && b[n] == '.' {
		whole = false
		for n++; n < len(b) && digit(b[n]); n++ {
			digits++
		}
	}
	if digits == 0 || len(b) > numberMax {
		return value{}
	}
	if n < len(b) && b[n]|0x20 == 'e' {
		whole = false
		if n++; n < len(b) && (b[n] == '+' || b[n] == '-') {
			n++
		}
		if n == len(b) {
			return value{}
		}
		for n < len(b) && digit(b[n]) {
			n++
		}
	}
	if n != len(b) {
		return value{}
	}
	if whole {
		if i, ok := parseInt(b); ok {
			return value{kind: kindInt, int: i}
		}
	}
	f, _ := strconv.ParseFloat(string(b), 64) // only too large: infinite then
	return value{kind: kindFloat, float: f}
}

// parseInt reads a sign and digits; false if they do not fit.
func parseInt(b []byte) (int64, bool) {
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
	}
	n := int64(0) // below 0, where there is one more
	for _, c := range b {
		d := int64(c - '0')
		if n < (math.MinInt64+d)/10 {
			return 0, false
		}
		n = n*10 - d
	}
	if negative {
		return n, true
	}
	return -n, n != math.MinInt64
}

// compareNumbers compares two numbers exactly.
func compareNumbers(a, b value) int {
	switch {
	case a.kind == kindInt && b.kind == kindInt:
		return cmp.Compare(a.int, b.int)
	case a.kind == kindInt:
		return compareMixed(a.int, b.float)
	case b.kind == kindInt:
		return -compareMixed(b.int, a.float)
	}
	return cmp.Compare(a.float, b.float)
}

func compareMixed(i int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := math.Trunc(f)
	if c := cmp.Compare(i, int64(whole)); c != 0 {
		return c
	}
	return cmp.Compare(whole, f)
}

// equal is "a = b".
func equal(a, b value) truth {
	switch {
	case a.kind == kindMissing && b.kind == kindMissing:
		return yes
	case a.kind == kindMissing:
		return unknown
	case b.kind == kindMissing:
		return no
	case a.kind == kindText && b.kind == kindText:
		return truthOf(bytes.Equal(a.text, b.text))
	case a.kind == kindBool && b.kind == kindBool:
		return truthOf(a.yes == b.yes)
	case a.kind == kindBool && b.kind == kindText:
		return equalBool(b.text, a.yes)
	case a.kind == kindText && b.kind == kindBool:
		return equalBool(a.text, b.yes)
	case a.kind == kindBool || b.kind == kindBool:
		return no
	}
	a, b = a.number(), b.number()
	if a.kind == kindMissing || b.kind == kindMissing {
		return unknown
	}
	return truthOf(compareNumbers(a, b) == 0)
}

func equalBool(text []byte, want bool) truth {
	switch {
	case bytes.EqualFold(text, []byte("true")):
		return truthOf(want)
	case bytes.EqualFold(text, []byte("false")):
		return truthOf(!want)
	}
	return unknown
}

// order compares two values as numbers; false if one of them is none.
func order(a, b value) (int, bool) {
	a, b = a.number(), b.number()
	if a.kind == kindMissing || b.kind == kindMissing {
		return 0, false
	}
	return compareNumbers(a, b), true
}
