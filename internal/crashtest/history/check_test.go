package history

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRules: a good history breaks no rule, a bad one the one that it is made for and no other.
func TestRules(t *testing.T) {
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			var broken []string
			for _, v := range Check(c.ops, c.rules) {
				broken = append(broken, v.Rule)
				t.Log(v)
			}
			slices.Sort(broken)
			broken = slices.Compact(broken)
			if c.rule == "" {
				require.Empty(t, broken)
				return
			}
			require.Equal(t, []string{c.rule}, broken)
		})
	}
}

// TestEveryRuleHasACase: a rule that no made-up history breaks may not work.
func TestEveryRuleHasACase(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	rules := map[string]bool{"nothing comes after its ack": true, "nothing comes after its forward": true}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		src, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`violate\("([^"]*[^" ])"`).FindAllSubmatch(src, -1) {
			rules[string(m[1])] = true
		}
	}
	require.Greater(t, len(rules), 25)
	for _, c := range cases {
		delete(rules, c.rule)
	}
	require.Empty(t, rules)
}

func TestWriteAndRead(t *testing.T) {
	for _, c := range cases {
		var b bytes.Buffer
		require.NoError(t, Write(&b, c.ops))
		got, err := Read(&b)
		require.NoError(t, err)
		require.Equal(t, Check(c.ops, c.rules), Check(got, c.rules), c.name)
	}
	_, err := Read(strings.NewReader("{"))
	require.Error(t, err)
}

func TestRecorder(t *testing.T) {
	r := NewRecorder()
	send := r.Begin(&Op{Kind: Send, Topic: "t", Items: []Item{sent("m")}})
	before := r.Snapshot()
	require.Equal(t, Never, before[0].Ended)
	require.Equal(t, Unknown, before[0].Outcome)
	r.End(send, OK, "OK", func() { send.Items[0].Outcome = OK })
	require.Equal(t, Unknown, before[0].Items[0].Outcome, "a snapshot stays as it is")
	got := r.Begin(&Op{Kind: Receive, Topic: "t", Group: "g"})
	require.Equal(t, 1, r.Came(got, came("m", 0, 0, 0)))
	require.Equal(t, 2, r.Came(got, came("n", 1, 0, 0)))
	r.End(got, OK, "OK", nil)
	ops := r.Snapshot()
	require.EqualValues(t, 3, r.Done())
	require.GreaterOrEqual(t, ops[1].Items[0].At, ops[0].Ended)
	require.Equal(t, "what comes was sent", Check(ops, Rules{})[0].Rule)
}
