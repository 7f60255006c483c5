package sql92

import (
	"errors"
	"testing"
)

// Any text is an expression or a syntax error within it, and any expression can be evaluated.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"n > 1 AND s LIKE 'a!%_' ESCAPE '!' OR NOT x IN ('a', 'b''c')", "a BETWEEN -1.5e3 AND .5 /* c */", "a = b <> NULL -- x", "((TRUE))", "a NOT STARTSWITH ''", "1 / 0", "ü'",
	} {
		f.Add(s, "1", "abc")
	}
	f.Fuzz(func(t *testing.T, text, one, two string) {
		x, err := Parse(text)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Column < 1 || e.Column > len(text)+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		values := [][]byte{[]byte(one), []byte(two)}
		x.Match(func(name string) ([]byte, bool) { return values[len(name)&1], len(name)%3 != 0 })
		x.Match(func(string) ([]byte, bool) { return nil, false })
	})
}
