package sql92

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The model: an expression is its text and a function from the properties to one of three letters.
type condition struct {
	text string
	eval func(map[string]string) string // "T", "F" or "U"
}

var names = []string{"a", "b", "c"}

var texts = []string{"", "x", "xy", "1", "2", "1.5", "-3", "true", "FALSE", "1e1", "9223372036854775808", "0.1"}

var numbers = []string{"0", "1", "2L", "-3", "1.5", "10", "9223372036854775807", "9223372036854775808.0", "1e-1", "0.0"}

func rational(s string) (*big.Rat, bool) {
	s = strings.TrimSuffix(s, "L")
	if s == "" || strings.ContainsAny(s, "xyTRUEFALSEtrufals") {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

func letter(b bool) string {
	if b {
		return "T"
	}
	return "F"
}

func negated(v string) string { return map[string]string{"T": "F", "F": "T", "U": "U"}[v] }

func genCondition(t *rapid.T, depth int) condition {
	kind := rapid.IntRange(0, 11).Draw(t, "kind")
	if depth <= 0 {
		kind = kind % 8
	}
	p := rapid.SampledFrom(names).Draw(t, "name")
	value := rapid.SampledFrom(texts).Draw(t, "text")
	number := rapid.SampledFrom(numbers).Draw(t, "number")
	not := rapid.Bool().Draw(t, "not")
	word, turn := "", func(v string) string { return v }
	if not {
		word, turn = " NOT", negated
	}
	ifThere := func(f func(string) string) func(map[string]string) string {
		return func(m map[string]string) string {
			v, ok := m[p]
			if !ok {
				return "U"
			}
			return turn(f(v))
		}
	}
	switch kind {
	case 0:
		return condition{p + word + " IN ('q', '" + value + "')", ifThere(func(v string) string { return letter(v == value || v == "q") })}
	case 1:
		return condition{p + word + " CONTAINS 'x" + value + "'", ifThere(func(v string) string { return letter(strings.Contains(v, "x"+value)) })}
	case 2:
		return condition{p + word + " LIKE '" + value + "%'", ifThere(func(v string) string { return letter(strings.HasPrefix(v, value)) })}
	case 3:
		return condition{p + " IS" + word + " NULL", func(m map[string]string) string {
			_, ok := m[p]
			return turn(letter(!ok))
		}}
	case 4:
		op := map[bool]string{false: " = ", true: " <> "}[not]
		return condition{p + op + "'" + value + "'", ifThere(func(v string) string { return letter(v == value) })}
	case 5:
		sign := rapid.SampledFrom([]string{"<", "<=", ">", ">=", "=", "<>"}).Draw(t, "sign")
		want, _ := rational(number)
		return condition{p + " " + sign + " " + number, func(m map[string]string) string {
			v, ok := m[p]
			r, is := rational(v)
			if !ok || !is {
				return "U"
			}
			c := r.Cmp(want)
			return letter(map[string]bool{"<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0, "=": c == 0, "<>": c != 0}[sign])
		}}
	case 6:
		return condition{p + word + " BETWEEN 0 AND 2", ifThere(func(v string) string {
			r, is := rational(v)
			if !is {
				return "U"
			}
			return letter(r.Sign() >= 0 && r.Cmp(big.NewRat(2, 1)) <= 0)
		})}
	case 7:
		return condition{p + " = TRUE", func(m map[string]string) string {
			switch strings.ToLower(m[p]) {
			case "true":
				return "T"
			case "false":
				return "F"
			}
			return "U"
		}}
	case 8:
		x := genCondition(t, depth-1)
		return condition{"NOT (" + x.text + ")", func(m map[string]string) string { return negated(x.eval(m)) }}
	}
	x, y := genCondition(t, depth-1), genCondition(t, depth-1)
	if kind == 9 {
		return condition{fmt.Sprintf("(%s) OR (%s)", x.text, y.text), func(m map[string]string) string {
			switch l, r := x.eval(m), y.eval(m); {
			case l == "T" || r == "T":
				return "T"
			case l == "F" && r == "F":
				return "F"
			}
			return "U"
		}}
	}
	return condition{fmt.Sprintf("(%s) AND (%s)", x.text, y.text), func(m map[string]string) string {
		switch l, r := x.eval(m), y.eval(m); {
		case l == "F" || r == "F":
			return "F"
		case l == "T" && r == "T":
			return "T"
		}
		return "U"
	}}
}

// Random expressions give what a naive evaluator gives.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCondition(t, 4)
		x, err := Parse(c.text)
		require.NoError(t, err, c.text)
		m := map[string]string{}
		for _, n := range names {
			if rapid.Bool().Draw(t, "there") {
				m[n] = rapid.SampledFrom(texts).Draw(t, "value")
			}
		}
		want := map[string]truth{"T": yes, "F": no, "U": unknown}[c.eval(m)]
		require.Equal(t, want, run(x, m), "%s with %v", c.text, m)
	})
}

// LIKE agrees with a matcher that tries everything.
func TestLikeAgainstModel(t *testing.T) {
	var naive func(p, s []rune) bool
	naive = func(p, s []rune) bool {
		switch {
		case len(p) == 0:
			return len(s) == 0
		case p[0] == '%':
			return naive(p[1:], s) || len(s) > 0 && naive(p, s[1:])
		}
		return len(s) > 0 && (p[0] == '_' || p[0] == s[0]) && naive(p[1:], s[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringOfN(rapid.SampledFrom([]rune("ab%_é")), 0, 8, -1).Draw(t, "pattern")
		s := rapid.StringOfN(rapid.SampledFrom([]rune("abé")), 0, 10, -1).Draw(t, "text")
		x, err := Parse("s LIKE '" + p + "'")
		require.NoError(t, err)
		require.Equal(t, naive([]rune(p), []rune(s)), x.Match(lookup(map[string]string{"s": s})), "%q LIKE %q", s, p)
	})
}
