package sql92

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample are the properties of the message that the tables ask.
var sample = map[string]string{
	"n": "2", "m": "10", "f": "5.5", "neg": "-3", "big": "9007199254740993", "huge": "123456789012345678901234567890",
	"s": "abc", "q": "it's", "e": "", "yes": "true", "No": "FALSE", "$x_1": "1e2", "like": "a%b", "u": "größe", "bad": "5x",
}

func lookup(m map[string]string) func(string) ([]byte, bool) {
	return func(name string) ([]byte, bool) {
		v, ok := m[name]
		return []byte(v), ok
	}
}

func TestMatch(t *testing.T) {
	for text, want := range map[string]truth{
		// numbers
		"n = 2": yes, "n=2L": yes, "n = 2.0": yes, "n = '2'": yes, "n = '2.0'": no, "n <> 2": no, "n <> 3": yes,
		"n < m": yes, "m > n": yes, "n >= 2": yes, "n <= 1.9": no, "f > 5": yes, "f = 5.5": yes, "f < 5.50001": yes,
		"n > 0.0": yes, "n > .5": yes, "n > 5e-1": yes, "$x_1 = 100": yes, "neg < 0": yes, "neg = -3": yes, "-neg = 3": yes, "+neg = -3": yes, "- -n = 2": yes,
		"big = 9007199254740993": yes, "big = 9007199254740992": no, "big > 9007199254740992.0": yes, "big > 9007199254740992": yes,
		"huge > 9223372036854775807": yes, "huge > 99999999999999999999": yes, "neg > -9223372036854775808": yes,
		"-9223372036854775808 = -9223372036854775808": yes, "9223372036854775808 > 9223372036854775807": yes,
		"s > 1": unknown, "bad > 1": unknown, "e > 1": unknown, "s = 1": unknown, "s <> 1": unknown, "absent > 1": unknown, "1 < absent": unknown, "s < n": unknown,
		"1 = 1": yes, "1 <> 1": no, "1 < 2": yes, "'1' = 1": yes,
		// text
		"s = 'abc'": yes, "s = 'ABC'": no, "s <> 'b'": yes, "q = 'it''s'": yes, "e = ''": yes, "'a' = 'a'": yes, "S = 'abc'": unknown,
		"s IN ('x', 'abc')": yes, "s IN ('x')": no, "s NOT IN ('x')": yes, "absent IN ('x')": unknown, "absent NOT IN ('x')": unknown, "n IN ('1','2','3')": yes,
		"s CONTAINS 'b'": yes, "s CONTAINS 'z'": no, "s NOT CONTAINS 'z'": yes, "absent CONTAINS 'a'": unknown, "absent NOT CONTAINS 'a'": unknown,
		"s CONTAINS ''": unknown, "s NOT CONTAINS ''": unknown,
		"s STARTSWITH 'ab'": yes, "s startswith 'b'": no, "s NOT STARTSWITH 'b'": yes, "s ENDSWITH 'bc'": yes, "s ENDSWITH 'b'": no, "'abc' CONTAINS 'a'": yes,
		"s LIKE 'a%'": yes, "s LIKE 'a_'": no, "s like '_b_'": yes, "s LIKE '%c'": yes, "s LIKE '%b%'": yes, "s LIKE 'abc'": yes, "s LIKE ''": no, "e LIKE ''": yes,
		"e LIKE '%'": yes, "s NOT LIKE 'b%'": yes, "absent LIKE '%'": unknown, "like LIKE 'a!%b' ESCAPE '!'": yes, "s LIKE 'a!%c' escape '!'": no,
		"u LIKE 'gr__e'": yes, "u LIKE 'gr_ße'": yes, "s LIKE '%%%a%%%b%c%%'": yes, "s LIKE '%a_'": no,
		// booleans
		"yes = TRUE": yes, "yes = false": no, "No = FALSE": yes, "yes <> TRUE": no, "s = TRUE": unknown, "TRUE = yes": yes, "TRUE": yes, "FALSE": no, "NULL": unknown,
		"1 = TRUE": no, "TRUE = NOT FALSE": yes, "(n = 2) = TRUE": yes, "(absent = 2) IS NULL": yes, "n = 2 = TRUE": yes, "yes": no, "absent": unknown, "NOT yes": yes,
		// null
		"s IS NULL": no, "s IS NOT NULL": yes, "absent IS NULL": yes, "absent IS NOT NULL": no, "e IS NULL": no, "absent = NULL": yes, "s <> NULL": yes, "NULL IS NULL": yes,
		"absent = gone": yes, "absent <> gone": no, "absent = s": unknown, "s = absent": no, "s <> absent": yes, "absent = 'x'": unknown, "absent <> 'x'": unknown, "NULL = s": unknown,
		// between
		"n BETWEEN 2 AND 3": yes, "n between 3 AND 4": no, "n NOT BETWEEN 3 AND 4": yes, "n NOT BETWEEN 2 AND 2": no, "absent BETWEEN 1 AND 2": unknown,
		"absent NOT BETWEEN 1 AND 2": unknown, "n BETWEEN neg AND m": yes, "n BETWEEN -1 AND 1.5": no, "n BETWEEN absent AND 1": no, "n BETWEEN 1 AND 3 AND s = 'abc'": yes,
		// logic
		"n = 1 OR n = 2 AND s = 'abc'": yes, "n = 2 OR n = 1 AND s = 'x'": yes, "(n = 2 OR n = 1) AND s = 'x'": no, "NOT (n = 2)": no, "NOT n = 1": yes, "NOT NOT n = 2": yes,
		"NOT s IN ('abc')": no, "NOT absent IS NULL": no, "NOT absent > 1": unknown,
		"absent > 1 OR n = 2": yes, "n = 2 OR absent > 1": yes, "absent > 1 AND n = 2": unknown, "absent > 1 AND n = 1": no, "absent > 1 OR n = 1": unknown, "s > 1 OR n = 2": yes,
		// layout
		"n=2--comment": yes, "n = 2 -- c\n AND s='abc'": yes, "/* a */ n /* b */ = 2 /**/": yes, "(((n)))=((2))": yes, "n\t=\r\n2": yes, "nOt n = 2 Or FaLsE": no,
		"LIKE LIKE 'a%'": unknown, "like LIKE 'a%'": yes, "escape IS NULL": yes,
	} {
		x, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, run(x, sample), text)
		require.Equal(t, want == yes, x.Match(lookup(sample)), text)
	}
}

// run evaluates x to one of three values.
func run(x *Expr, m map[string]string) truth {
	return x.root.truth(&env{names: x.names, props: lookup(m), slots: make([]slot, len(x.names))})
}

func TestSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "column 1: expected a property, a value or (, found the end",
		"  ":                     "column 3: expected a property, a value or (, found the end",
		"n >":                    "column 4: expected a property, a value or (, found the end",
		"n > 1 2":                "column 7: expected AND, OR or the end, found the number '2'",
		"n = 2 rest":             "column 7: expected AND, OR or the end, found 'rest'",
		"foo(n)":                 "column 1: there are no functions in filters, found 'foo'",
		"ü = 1":                  "column 1: expected a property, a value or an operator, found 'ü'",
		"s = 'ü' ! 1":            "column 9: expected a property, a value or an operator, found '!'",
		"n != 1":                 "column 3: expected <>, found !=",
		"1 / 0 = 1":              "column 3: there is no arithmetic in filters, found /",
		"n * 2 = 1":              "column 3: there is no arithmetic in filters, found *",
		"n + 2 = 1":              "column 3: expected AND, OR or the end, found '+'",
		"a.b = 1":                "column 2: expected a property, a value or an operator, found '.'",
		"5abc = 1":               "column 2: expected the end of the number 5, found 'a'",
		"0x10 = n":               "column 2: expected the end of the number 0, found 'x'",
		"s = 'abc":               "column 5: the text has no end, expected '",
		"s = /* 'abc'":           "column 5: the comment has no end, expected */",
		"(n = 1":                 "column 7: expected AND, OR or ), found the end",
		"n = 1)":                 "column 6: expected AND, OR or the end, found ')'",
		"s > 'a'":                "column 5: only numbers and properties can be compared by >",
		"TRUE < n":               "column 1: only numbers and properties can be compared by <",
		"n > NULL":               "column 5: only numbers and properties can be compared by >",
		"n BETWEEN 'a' AND 1":    "column 11: only numbers and properties can be compared by >=",
		"n BETWEEN 3 AND 2":      "column 11: the lower bound is above the upper one",
		"n BETWEEN 3 OR 2":       "column 13: expected AND, found 'OR'",
		"n IN (1, 2)":            "column 7: expected a text in quotes, found the number '1'",
		"n IN ()":                "column 7: expected a text in quotes, found ')'",
		"n IN ('a' 'b')":         "column 11: expected , or ), found the text 'b'",
		"'a' IN ('a')":           "column 1: expected a property to the left of IN",
		"1 CONTAINS 'a'":         "column 1: expected a property to the left",
		"s CONTAINS n":           "column 12: expected a text in quotes, found 'n'",
		"s NOT 'a'":              "column 7: expected BETWEEN, IN, LIKE, CONTAINS, STARTSWITH or ENDSWITH, found the text 'a'",
		"s IS 1":                 "column 6: expected NULL, found the number '1'",
		"s LIKE 'a!' ESCAPE '!'": "column 8: the escape character must stand before %, _ or itself",
		"s LIKE 'a' ESCAPE 'xy'": "column 19: expected one character behind ESCAPE, found the text 'xy'",
		"n":                      "",
		"1":                      "column 1: expected a condition, found a value",
		"'a' AND TRUE":           "column 1: expected a condition, found a value",
		"NOT 5":                  "column 5: expected a condition, found a value",
		"- 'a' = 1":              "column 3: expected a number or a property behind -",
		"-(n = 1) = 1":           "column 3: expected a number or a property behind -",
		"AND":                    "column 1: expected a property, a value or (, found 'AND'",
	} {
		_, err := Parse(text)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want, text)
		var syntax *SyntaxError
		require.ErrorAs(t, err, &syntax)
	}
}

func TestLimits(t *testing.T) {
	deep := strings.Repeat("(", 65) + "n=1" + strings.Repeat(")", 65)
	_, err := Parse(deep)
	require.EqualError(t, err, "column 65: conditions lie more than 64 levels deep in each other")
	_, err = Parse(deep[1 : len(deep)-1])
	require.NoError(t, err)
	for _, text := range []string{strings.Repeat("NOT ", 10000) + "TRUE", strings.Repeat("- ", 10000) + "1 = 1", "a" + strings.Repeat(" = a", 10000), strings.Repeat("(", 60000)} {
		_, err = Parse(text)
		require.Error(t, err, text[:20])
	}
	_, err = Parse("n = 1" + strings.Repeat(" OR n = 1", 2000))
	require.ErrorContains(t, err, "more than 4096 parts")
	_, err = ParseWithin("n = 1"+strings.Repeat(" OR n = 1", 2000), Limits{Parts: 10000})
	require.NoError(t, err)
	_, err = Parse("a = '" + strings.Repeat("x", 64<<10) + "'")
	require.ErrorContains(t, err, "column 1: the expression has 65542 bytes")
	_, err = Parse("a = '" + strings.Repeat("x", 8<<10) + "'")
	require.NoError(t, err)
}

// An evaluation does not allocate, and asks for each property at most once.
func TestMatchAllocates(t *testing.T) {
	x, err := Parse("n > 1 AND n < 5.5 AND s LIKE 'a%' AND s IN ('abc', 'b') AND yes = TRUE AND (absent IS NULL OR absent > 3) AND s CONTAINS 'b'")
	require.NoError(t, err)
	values := map[string][]byte{"n": []byte("2"), "s": []byte("abc"), "yes": []byte("true")}
	asked := map[string]int{}
	props := func(name string) ([]byte, bool) {
		asked[name]++
		v, ok := values[name]
		return v, ok
	}
	require.True(t, x.Match(props))
	require.Equal(t, map[string]int{"n": 1, "s": 1, "yes": 1, "absent": 1}, asked)
	require.Zero(t, testing.AllocsPerRun(100, func() { x.Match(props) }))
}
