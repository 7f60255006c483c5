package sql92

import "unicode/utf8"

// pattern is the right side of LIKE: characters, any one character (_), any number of them (%).
type pattern []element

// element is one part of a pattern.
type element struct {
	char rune
	one  bool // any one character
	many bool // any number of characters
}

// newPattern reads a pattern; escape, if not 0, makes the character behind it stand for itself. It returns
// the byte offset of the fault, -1 if there is none.
func newPattern(text string, escape rune) (pattern, int) {
	p := make(pattern, 0, len(text))
	escaped := -1
	for i, c := range text {
		switch {
		case escaped >= 0:
			if c != '%' && c != '_' && c != escape {
				return nil, escaped
			}
			p, escaped = append(p, element{char: c}), -1
		case escape != 0 && c == escape:
			escaped = i
		case c == '%':
			if n := len(p); n == 0 || !p[n-1].many { // twice is the same
				p = append(p, element{many: true})
			}
		case c == '_':
			p = append(p, element{one: true})
		default:
			p = append(p, element{char: c})
		}
	}
	return p, escaped
}

// match reports whether the whole text fits. It goes back to the last % only, so it takes at most
// len(p) * len(text) steps.
func (p pattern) match(text []byte) bool {
	i, at := 0, 0
	back, from := -1, 0 // behind the last %, and the text that it has not taken
	for at < len(text) {
		c, size := utf8.DecodeRune(text[at:])
		switch {
		case i < len(p) && p[i].many:
			i++
			back, from = i, at
		case i < len(p) && (p[i].one || p[i].char == c):
			i++
			at += size
		case back >= 0:
			_, size = utf8.DecodeRune(text[from:])
			from += size
			i, at = back, from
		default:
			return false
		}
	}
	for i < len(p) && p[i].many {
		i++
	}
	return i == len(p)
}
