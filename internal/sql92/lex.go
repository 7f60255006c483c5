package sql92

import (
	"strings"
	"unicode/utf8"
)

// class is the kind of a token.
type class uint8

const (
	classEnd class = iota
	className
	classText
	classInt
	classFloat
	classSign // an operator, a parenthesis or a comma
	classKeyword
)

// token is one word of an expression.
type token struct {
	class class
	at    int    // byte offset
	text  string // as written; keywords in upper case, text without its quotes, numbers without L
}

// is reports whether the token is this operator or keyword.
func (t *token) is(text string) bool {
	return (t.class == classSign || t.class == classKeyword) && t.text == text
}

// word reports whether the token is a name that stands for a keyword where an operator is expected: these
// are free as names of properties.
func (t *token) word(text string) bool {
	return t.class == className && strings.EqualFold(t.text, text)
}

// lexer cuts an expression into tokens.
type lexer struct {
	text string
	at   int
	err  *SyntaxError
}

// fail notes the first fault.
func (l *lexer) fail(at int, text string) {
	if l.err == nil {
		l.err = &SyntaxError{Column: utf8.RuneCountInString(l.text[:at]) + 1, Text: text}
	}
}

// next returns the next token; the end, once something is wrong.
func (l *lexer) next() token {
	l.blank()
	if l.err != nil || l.at >= len(l.text) {
		return token{class: classEnd, at: len(l.text)}
	}
	start, c := l.at, l.text[l.at]
	switch {
	case c == '\'':
		return l.quoted()
	case digit(c), c == '.' && l.peek(1, digit):
		return l.number()
	case nameStart(c):
		return l.name()
	}
	n := 1
	switch rest := l.text[start:]; {
	case strings.HasPrefix(rest, "<>"), strings.HasPrefix(rest, "<="), strings.HasPrefix(rest, ">="):
		n = 2
	case strings.HasPrefix(rest, "!="):
		l.fail(start, "expected <>, found !=")
	case strings.IndexByte("=<>(),+-", c) >= 0:
	case strings.IndexByte("*/%", c) >= 0:
		l.fail(start, "there is no arithmetic in filters, found "+string(c))
	default:
		r, size := utf8.DecodeRuneInString(rest)
		n = size
		l.fail(start, "expected a property, a value or an operator, found "+quote(string(r)))
	}
	l.at += n
	return token{class: classSign, at: start, text: l.text[start:l.at]}
}

// blank skips white space and comments.
func (l *lexer) blank() {
	for l.at < len(l.text) {
		rest := l.text[l.at:]
		switch {
		case strings.IndexByte(" \t\r\n\f", rest[0]) >= 0:
			l.at++
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexAny(rest, "\r\n")
			if end < 0 {
				end = len(rest)
			}
			l.at += end
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				l.fail(l.at, "the comment has no end, expected */")
				return
			}
			l.at += end + 4
		default:
			return
		}
	}
}

// quoted reads text in quotes.
func (l *lexer) quoted() token {
	start := l.at
	for l.at++; l.at < len(l.text); l.at++ {
		if l.text[l.at] != '\'' {
			continue
		}
		if l.at+1 < len(l.text) && l.text[l.at+1] == '\'' {
			l.at++
			continue
		}
		l.at++
		return token{class: classText, at: start, text: strings.ReplaceAll(l.text[start+1:l.at-1], "''", "'")}
	}
	l.fail(start, "the text has no end, expected '")
	return token{class: classEnd, at: start}
}

// number reads a number without a sign.
func (l *lexer) number() token {
	start, c := l.at, classInt
	l.digits()
	if l.at < len(l.text) && l.text[l.at] == '.' {
		c = classFloat
		l.at++
		l.digits()
	}
	if l.at < len(l.text) && l.text[l.at]|0x20 == 'e' {
		n := 1
		if l.peek(1, func(c byte) bool { return c == '+' || c == '-' }) {
			n = 2
		}
		if l.peek(n, digit) {
			c = classFloat
			l.at += n
			l.digits()
		}
	}
	t := token{class: c, at: start, text: l.text[start:l.at]}
	if c == classInt && l.at < len(l.text) && l.text[l.at]|0x20 == 'l' {
		l.at++
	}
	if l.at < len(l.text) && (nameStart(l.text[l.at]) || digit(l.text[l.at]) || l.text[l.at] == '.') {
		l.fail(l.at, "expected the end of the number "+t.text+", found "+quote(l.text[l.at:l.at+1]))
	}
	return t
}

func (l *lexer) digits() {
	for l.at < len(l.text) && digit(l.text[l.at]) {
		l.at++
	}
}

func (l *lexer) peek(n int, is func(byte) bool) bool {
	return l.at+n < len(l.text) && is(l.text[l.at+n])
}

var keywords = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "IS": true, "NULL": true, "TRUE": true, "FALSE": true,
	"BETWEEN": true, "IN": true, "CONTAINS": true, "STARTSWITH": true, "ENDSWITH": true,
}

// keywordMax is the length of the longest keyword.
const keywordMax = 10

// name reads a name or a keyword.
func (l *lexer) name() token {
	start := l.at
	for l.at < len(l.text) && (nameStart(l.text[l.at]) || digit(l.text[l.at])) {
		l.at++
	}
	t := token{class: className, at: start, text: l.text[start:l.at]}
	if len(t.text) <= keywordMax {
		if upper := strings.ToUpper(t.text); keywords[upper] {
			t.class, t.text = classKeyword, upper
		}
	}
	return t
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func nameStart(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '$'
}

// quoteMax bounds what an error repeats of an expression.
const quoteMax = 32

func quote(s string) string {
	if len(s) > quoteMax {
		s = strings.ToValidUTF8(s[:quoteMax], "") + "..."
	}
	return "'" + s + "'"
}

// found describes a token for an error.
func (t *token) found() string {
	switch t.class {
	case classEnd:
		return "the end"
	case classText:
		return "the text " + quote(t.text)
	case classInt, classFloat:
		return "the number " + quote(t.text)
	}
	return quote(t.text)
}
