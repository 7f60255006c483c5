package sql92

import (
	"bytes"
	"math"
	"slices"
)

// op is what a node does.
type op uint8

const (
	opConst  op = iota // val
	opProp             // property slot
	opOr               // of kids, one or more
	opAnd              // of kids, one or more
	opNot              // of kids[0]
	opMinus            // -kids[0]
	opEqual            // kids[0] = kids[1]
	opLess             // kids[0] < kids[1]
	opLessEq           // kids[0] <= kids[1]
	opIn               // kids[0] in texts
	opLike             // kids[0] like pattern
	opHas              // kids[0] contains val
	opBegins           // kids[0] begins with val
	opEnds             // kids[0] ends with val
)

// isCondition reports whether what the operator gives is a truth value.
func (o op) isCondition() bool { return o >= opOr && o != opMinus }

// node is one part of an expression.
type node struct {
	op      op
	at      int // byte offset in the text
	slot    int
	kids    []*node
	val     value
	texts   [][]byte // sorted
	pattern pattern
}

// env is what one evaluation knows of a message.
type env struct {
	names []string
	props func(string) ([]byte, bool)
	slots []slot
}

// slot holds the value of a property once it was asked for.
type slot struct {
	asked, ok bool
	value     []byte
}

func (e *env) property(i int) value {
	s := &e.slots[i]
	if !s.asked {
		s.asked = true
		s.value, s.ok = e.props(e.names[i])
	}
	if !s.ok {
		return value{}
	}
	return textValue(s.value)
}

// truth evaluates a node as a condition.
func (n *node) truth(e *env) truth {
	switch n.op {
	case opOr:
		most := no
		for _, k := range n.kids {
			if most = max(most, k.truth(e)); most == yes {
				break
			}
		}
		return most
	case opAnd:
		least := yes
		for _, k := range n.kids {
			if least = min(least, k.truth(e)); least == no {
				break
			}
		}
		return least
	case opNot:
		return n.kids[0].truth(e).not()
	case opEqual:
		return equal(n.kids[0].value(e), n.kids[1].value(e))
	case opLess, opLessEq:
		c, ok := order(n.kids[0].value(e), n.kids[1].value(e))
		if !ok {
			return unknown
		}
		return truthOf(c < 0 || c == 0 && n.op == opLessEq)
	case opIn, opLike, opHas, opBegins, opEnds:
		return n.ofText(n.kids[0].value(e))
	case opProp:
		if e.property(n.slot).kind == kindMissing {
			return unknown
		}
		return no
	case opConst:
		if n.val.kind == kindBool {
			return truthOf(n.val.yes)
		}
	}
	return unknown
}

// ofText evaluates what is asked of a text.
func (n *node) ofText(v value) truth {
	if v.kind != kindText {
		return unknown
	}
	switch n.op {
	case opIn:
		_, in := slices.BinarySearchFunc(n.texts, v.text, bytes.Compare)
		return truthOf(in)
	case opLike:
		return truthOf(n.pattern.match(v.text))
	}
	if len(n.val.text) == 0 {
		return unknown
	}
	switch n.op {
	case opBegins:
		return truthOf(bytes.HasPrefix(v.text, n.val.text))
	case opEnds:
		return truthOf(bytes.HasSuffix(v.text, n.val.text))
	}
	return truthOf(bytes.Contains(v.text, n.val.text))
}

// value evaluates a node as an operand.
func (n *node) value(e *env) value {
	switch n.op {
	case opConst:
		return n.val
	case opProp:
		return e.property(n.slot)
	case opMinus:
		return n.kids[0].value(e).number().negative()
	}
	return boolValue(n.truth(e))
}

// negative is -v of a number, missing of a missing one.
func (v value) negative() value {
	switch {
	case v.kind == kindInt && v.int == math.MinInt64:
		return value{kind: kindFloat, float: -float64(v.int)}
	case v.kind == kindInt:
		v.int = -v.int
	case v.kind == kindFloat:
		v.float = -v.float
	}
	return v
}
