package sql92

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
)

// parser reads an expression by recursive descent. After the first fault every token is the end, so all
// functions return soon; what they return is not used then.
type parser struct {
	lexer
	limits Limits
	tok    token // next one
	depth  int
	parts  int
	names  []string
	slots  map[string]int
}

// fault is what a faulty part reads as.
var fault = &node{op: opConst}

func (p *parser) step() token {
	t := p.tok
	p.tok = p.next()
	return t
}

// expected notes what should stand where the next token is.
func (p *parser) expected(what string) {
	p.fail(p.tok.at, "expected "+what+", found "+p.tok.found())
	p.tok = token{class: classEnd, at: len(p.text)}
}

// wrong notes a fault at a part.
func (p *parser) wrong(n *node, text string) *node {
	p.fail(n.at, text)
	return fault
}

// accept takes the next token if it is this operator or keyword.
func (p *parser) accept(text string) bool {
	if !p.tok.is(text) {
		return false
	}
	p.step()
	return true
}

func (p *parser) need(text string) {
	if !p.accept(text) {
		p.expected(text)
	}
}

// add counts and returns a part.
func (p *parser) add(n node) *node {
	p.parts += 1 + len(n.texts)
	if p.parts > p.limits.Parts {
		p.fail(n.at, fmt.Sprintf("the expression has more than %d parts", p.limits.Parts))
	}
	return &n
}

// deeper counts the levels above what fn reads.
func (p *parser) deeper(at int, fn func() *node) *node {
	if p.depth++; p.depth > p.limits.Depth {
		p.fail(at, fmt.Sprintf("conditions lie more than %d levels deep in each other", p.limits.Depth))
		p.tok = token{class: classEnd, at: len(p.text)}
		return fault
	}
	n := fn()
	p.depth--
	return n
}

// whole reads the whole text.
func (p *parser) whole() *node {
	p.step()
	n := p.or()
	if p.tok.class != classEnd {
		p.expected("AND, OR or the end")
	}
	return p.condition(n)
}

// condition refuses a part that has no truth value.
func (p *parser) condition(n *node) *node {
	if n.op == opMinus || n.op == opConst && n.val.kind != kindBool && n.val.kind != kindMissing {
		return p.wrong(n, "expected a condition, found a value")
	}
	return n
}

func (p *parser) or() *node { return p.list(opOr, "OR", p.and) }

func (p *parser) and() *node { return p.list(opAnd, "AND", p.not) }

func (p *parser) list(o op, word string, read func() *node) *node {
	first := read()
	if !p.tok.is(word) {
		return first
	}
	kids := []*node{p.condition(first)}
	for p.accept(word) {
		kids = append(kids, p.condition(read()))
	}
	return p.add(node{op: o, at: first.at, kids: kids})
}

func (p *parser) not() *node {
	if !p.tok.is("NOT") {
		return p.equality()
	}
	t := p.step()
	return p.negate(t.at, p.condition(p.deeper(t.at, p.not)))
}

func (p *parser) negate(at int, n *node) *node {
	return p.add(node{op: opNot, at: at, kids: []*node{n}})
}

func (p *parser) equality() *node {
	left := p.comparison()
	for n := 0; ; n++ {
		if n > p.limits.Depth {
			return p.wrong(left, fmt.Sprintf("more than %d comparisons in a row", p.limits.Depth))
		}
		at := left.at
		switch {
		case p.accept("="):
			left = p.add(node{op: opEqual, at: at, kids: []*node{left, p.comparison()}})
		case p.accept("<>"):
			left = p.negate(at, p.add(node{op: opEqual, at: at, kids: []*node{left, p.comparison()}}))
		case p.accept("IS"):
			not := p.accept("NOT")
			null := p.tok
			p.need("NULL")
			left = p.add(node{op: opEqual, at: at, kids: []*node{left, p.add(node{op: opConst, at: null.at})}})
			if not {
				left = p.negate(at, left)
			}
		default:
			return left
		}
	}
}

func (p *parser) comparison() *node {
	left := p.unary()
	for {
		t := p.tok
		switch {
		case t.is("<"), t.is("<="), t.is(">"), t.is(">="):
			p.step()
			left = p.ordered(t.text, left, p.unary())
		case t.is("NOT"):
			p.step()
			n := p.test(left)
			if n == nil {
				p.expected("BETWEEN, IN, LIKE, CONTAINS, STARTSWITH or ENDSWITH")
				return fault
			}
			left = p.negate(left.at, n)
		default:
			n := p.test(left)
			if n == nil {
				return left
			}
			left = n
		}
	}
}

// ordered is a comparison by order; with > and >= the sides change places.
func (p *parser) ordered(sign string, a, b *node) *node {
	for _, n := range []*node{a, b} {
		switch {
		case n.op.isCondition(), n.op == opConst && !n.val.isNumber():
			return p.wrong(n, "only numbers and properties can be compared by "+sign)
		}
	}
	n := node{op: opLess, at: a.at, kids: []*node{a, b}}
	if len(sign) == 2 {
		n.op = opLessEq
	}
	if sign[0] == '>' {
		n.kids = []*node{b, a}
	}
	return p.add(n)
}

// test reads what is asked of left by a word, nil if the next token is none of them.
func (p *parser) test(left *node) *node {
	t := p.tok
	switch {
	case p.accept("BETWEEN"):
		return p.between(left)
	case p.accept("IN"):
		return p.in(left)
	case t.word("LIKE"):
		p.step()
		return p.like(left)
	}
	for word, o := range map[string]op{"CONTAINS": opHas, "STARTSWITH": opBegins, "ENDSWITH": opEnds} {
		if p.accept(word) {
			return p.ofText(left, node{op: o, val: textValue([]byte(p.literal().text))})
		}
	}
	return nil
}

// literal reads a text.
func (p *parser) literal() token {
	if p.tok.class != classText {
		p.expected("a text in quotes")
		return token{class: classText, at: p.tok.at}
	}
	return p.step()
}

// ofText makes a part that asks something of a text.
func (p *parser) ofText(left *node, n node) *node {
	if left.op != opProp && (left.op != opConst || left.val.kind != kindText) {
		return p.wrong(left, "expected a property to the left")
	}
	n.at, n.kids = left.at, []*node{left}
	return p.add(n)
}

func (p *parser) between(left *node) *node {
	low := p.unary()
	p.need("AND")
	high := p.unary()
	if low.op == opConst && high.op == opConst && low.val.isNumber() && high.val.isNumber() && compareNumbers(low.val, high.val) > 0 {
		return p.wrong(low, "the lower bound is above the upper one")
	}
	return p.add(node{op: opAnd, at: left.at, kids: []*node{p.ordered(">=", left, low), p.ordered("<=", left, high)}})
}

func (p *parser) in(left *node) *node {
	p.need("(")
	texts := [][]byte{[]byte(p.literal().text)}
	for p.accept(",") {
		texts = append(texts, []byte(p.literal().text))
	}
	if !p.accept(")") {
		p.expected(", or )")
	}
	if left.op != opProp {
		return p.wrong(left, "expected a property to the left of IN")
	}
	slices.SortFunc(texts, bytes.Compare)
	return p.ofText(left, node{op: opIn, texts: texts})
}

func (p *parser) like(left *node) *node {
	t, escape := p.literal(), rune(0)
	if p.tok.word("ESCAPE") {
		p.step()
		e := p.literal()
		var size int
		if escape, size = utf8.DecodeRuneInString(e.text); size != len(e.text) || e.text == "" {
			p.fail(e.at, "expected one character behind ESCAPE, found "+e.found())
		}
	}
	pattern, wrong := newPattern(t.text, escape)
	if wrong >= 0 {
		p.fail(t.at, "the escape character must stand before %, _ or itself")
	}
	return p.ofText(left, node{op: opLike, pattern: pattern})
}

func (p *parser) unary() *node {
	t := p.tok
	switch {
	case p.accept("NOT"):
		return p.negate(t.at, p.condition(p.deeper(t.at, p.unary)))
	case p.accept("-"):
		return p.signed(t, p.deeper(t.at, p.unary))
	case p.accept("+"):
		n := p.deeper(t.at, p.unary)
		return p.signed(t, p.signed(t, n))
	}
	return p.primary()
}

// signed is -n.
func (p *parser) signed(t token, n *node) *node {
	switch {
	case n.op == opConst && n.val.isNumber():
		n.at, n.val = t.at, n.val.negative()
		return n
	case n.op.isCondition(), n.op == opConst:
		return p.wrong(n, "expected a number or a property behind "+t.text)
	}
	return p.add(node{op: opMinus, at: t.at, kids: []*node{n}})
}

func (p *parser) primary() *node {
	t := p.tok
	switch {
	case t.class == className:
		p.step()
		if p.tok.is("(") {
			p.fail(t.at, "there are no functions in filters, found "+quote(t.text))
		}
		return p.add(node{op: opProp, at: t.at, slot: p.slot(t.text)})
	case t.class == classText:
		p.step()
		return p.add(node{op: opConst, at: t.at, val: textValue([]byte(t.text))})
	case t.class == classInt, t.class == classFloat:
		p.step()
		return p.add(node{op: opConst, at: t.at, val: p.number(t)})
	case p.accept("TRUE"):
		return p.add(node{op: opConst, at: t.at, val: boolValue(yes)})
	case p.accept("FALSE"):
		return p.add(node{op: opConst, at: t.at, val: boolValue(no)})
	case p.accept("NULL"):
		return p.add(node{op: opConst, at: t.at})
	case p.accept("("):
		n := p.deeper(t.at, p.or)
		if !p.accept(")") {
			p.expected("AND, OR or )")
		}
		return n
	}
	p.expected("a property, a value or (")
	return fault
}

func (p *parser) number(t token) value {
	v := parseNumber([]byte(t.text))
	if v.kind == kindMissing {
		p.fail(t.at, "the number is too long")
	}
	return v
}

// slot is the number of a property.
func (p *parser) slot(name string) int {
	i, is := p.slots[name]
	if !is {
		i = len(p.names)
		p.slots[name] = i
		p.names = append(p.names, name)
	}
	return i
}
