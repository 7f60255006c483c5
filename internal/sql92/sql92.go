// Package sql92 is the filter language of consumers: conditions on the properties of a message, in the
// manner of SQL92, with three-valued logic.
//
//	condition  = and { OR and }
//	and        = not { AND not }
//	not        = NOT not | equality
//	equality   = comparison { ( "=" | "<>" ) comparison | IS [ NOT ] NULL }
//	comparison = unary { ( "<" | "<=" | ">" | ">=" ) unary
//	                   | [ NOT ] BETWEEN unary AND unary
//	                   | [ NOT ] IN "(" text { "," text } ")"
//	                   | [ NOT ] LIKE text [ ESCAPE text ]
//	                   | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) text }
//	unary      = ( "+" | "-" | NOT ) unary | primary
//	primary    = text | number | TRUE | FALSE | NULL | property | "(" condition ")"
//
// Keywords are case-insensitive; names of properties begin with a letter, _ or $, go on with these and
// digits, and count as written. Text stands in '...', a quote within it twice. Whole numbers may end in L,
// others have a point or an exponent. "-- ..." and "/* ... */" are comments.
//
// A property is text, or missing, which is the same as NULL. Against a number it is read as a number,
// against TRUE and FALSE as one of these; where it is none, the comparison is unknown. Whole numbers and
// others compare exactly. Two properties are equal if their texts are, and ordered as numbers.
//
// Two missing values are equal, so that "a = NULL" is "a IS NULL". A missing value to the left of = and <>
// alone gives unknown, to the right alone it is not equal. Everything else that is asked of a missing value
// is unknown; so is CONTAINS, STARTSWITH and ENDSWITH of an empty text. A property alone is no condition:
// it is false, unknown if missing. What is unknown in the end does not match.
package sql92

import "fmt"

// Limits bounds what an expression may cost. A field of 0 means its default.
type Limits struct {
	// Bytes is the longest text. Default 64 KiB.
	Bytes int
	// Depth is how deep conditions may lie in each other: parentheses, NOT, signs, chains of = and <>.
	// Default 64.
	Depth int
	// Parts is how many operators, values and properties an expression may have. Default 4096.
	Parts int
}

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = 64 << 10
	}
	if l.Depth == 0 {
		l.Depth = 64
	}
	if l.Parts == 0 {
		l.Parts = 4096
	}
	return l
}

// SyntaxError says what is wrong with an expression.
type SyntaxError struct {
	Column int // of the fault, in characters from 1
	Text   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Text) }

// Expr is an expression ready for use. It does not change: any number of goroutines may use it.
type Expr struct {
	root  *node
	names []string // of the properties in it, each once
	parts int
}

// Parse reads an expression within the default limits. Its error is a *SyntaxError.
func Parse(text string) (*Expr, error) { return ParseWithin(text, Limits{}) }

// ParseWithin reads an expression. Its error is a *SyntaxError.
func ParseWithin(text string, l Limits) (*Expr, error) {
	l = l.withDefaults()
	if len(text) > l.Bytes {
		return nil, &SyntaxError{Column: 1, Text: fmt.Sprintf("the expression has %d bytes, at most %d are allowed", len(text), l.Bytes)}
	}
	p := parser{lexer: lexer{text: text}, limits: l, slots: map[string]int{}}
	root := p.whole()
	if p.err != nil {
		return nil, p.err
	}
	return &Expr{root: root, names: p.names, parts: p.parts}, nil
}

// Parts is the number of operators, values and properties: what an evaluation costs at most.
func (x *Expr) Parts() int { return x.parts }

// slotsInline is how many properties an evaluation keeps without allocating.
const slotsInline = 8

// Match reports whether a message with these properties matches. props is asked for each property at most
// once; what it returns must not change meanwhile.
func (x *Expr) Match(props func(name string) (value []byte, ok bool)) bool {
	var few [slotsInline]slot
	e := env{names: x.names, props: props, slots: few[:]}
	if len(x.names) > len(few) {
		e.slots = make([]slot, len(x.names))
	}
	return x.root.truth(&e) == yes
}
