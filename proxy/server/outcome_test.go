package server

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

var update = flag.Bool("update", false, "write docs/outcomes.md anew")

const outcomesFile = "../../docs/outcomes.md"

// newCodes are those that Rust 5.0.0 does not know: its task panics on them.
var newCodes = []rmqv2.Code{40019, 40020, 40021, 40404, 41302, 42901, 42902}

func rpcs() []RPC {
	all := make([]RPC, numRPCs)
	for i := range all {
		all[i] = RPC(i)
	}
	return all
}

// TestEveryOutcomeHasAnAnswer walks kinds and calls.
func TestEveryOutcomeHasAnAnswer(t *testing.T) {
	for _, kind := range mqerr.Kinds() {
		if _, ok := outcomes[kind]; !ok {
			t.Errorf("%v has no answer", kind)
		}
		for _, rpc := range rpcs() {
			r := outcomeOf(rpc, mqerr.New(kind, "the text"))
			switch {
			case r.code == rmqv2.Code_OK || r.code == 0 || rmqv2.Code_name[int32(r.code)] == "":
				t.Errorf("%v of %v is code %d", kind, rpc, r.code)
			case slices.Contains(newCodes, r.code) && !slices.Contains(pullCalls, rpc) && kind != mqerr.QuotaExceeded: // no lite topics in Rust 5.0.0
				t.Errorf("%v of %v is %v, on which Rust 5.0.0 panics", kind, rpc, r.code)
			case r.text == "":
				t.Errorf("%v of %v has no text", kind, rpc)
			case (kind == mqerr.Internal || kind == mqerr.Corrupt) && strings.Contains(r.text, "the text"):
				t.Errorf("%v of %v tells a stranger: %s", kind, rpc, r.text)
			}
			if _, ok := reactionTo(rpc, r.code); !ok {
				t.Errorf("nothing says what clients do with %v of %v", r.code, rpc)
			}
		}
	}
	if got := outcomeOf(RPCSendMessage, fmt.Errorf("plain: %w", os.ErrNotExist)); got != refuse(rmqv2.Code_INTERNAL_SERVER_ERROR, internalText) {
		t.Errorf("an error without a kind is %v", got)
	}
	for key := range exceptions {
		if key.rpc >= numRPCs || exceptions[key].code == outcomes[key.kind].code {
			t.Errorf("exception for %v of %v is none", key.kind, key.rpc)
		}
	}
}

func reactionTo(rpc RPC, code rmqv2.Code) (reaction, bool) {
	i := slices.IndexFunc(reactions, func(r reaction) bool { return r.rpc == rpc && r.code == code })
	if i < 0 {
		return reaction{}, false
	}
	return reactions[i], true
}

// TestOutcomesAreDocumented compares docs/outcomes.md with the tables.
func TestOutcomesAreDocumented(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(outcomesFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(outcomesFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the tables say: go test ./proxy/server -run TestOutcomesAreDocumented -update", outcomesFile)
	}
}

const outcomesIntro = `# Outcomes

What a client is told when something goes wrong inside, and what it then does. This page is written by
the test of proxy/server from the tables in proxy/server/outcome.go and reactions_test.go; change those.

A failure has a kind (internal/mqerr). Here it becomes a code of the public protocol, in the Status of a
normal answer. New kinds of failures get a row, never a code of their own. A request that is wrong by
itself (a bad name, a body too long) is refused before, with the code that docs and clients expect for
it; no row is needed for that.

- *text*: the error's own text is sent unless a fixed one stands here; then the log has the error.
- No code is newer than Rust 5.0.0, which panics on a code that it does not know. The exceptions:
  MESSAGE_BODY_EMPTY for a send without a body, outside this table, the calls about pulls and offsets,
  which no official client makes by itself, and what is said of lite topics, which that client does not have.
- Telemetry has no Status for this: a code 4xxxx ends the stream with gRPC INVALID_ARGUMENT, any other
  with INTERNAL, but what met a bound with RESOURCE_EXHAUSTED. A proxy that drains ends it normally.
- What met a bound ("exhausted": 1 s, "disk full": 5 s) says when to come again: in the text, "(retry after
  1000 ms)", and in the trailer retry-after-ms. Official clients do not read it and go by their own backoff.
- A receive that fails is answered a little late, since some clients ask again at once; one that met a bound,
  after the pause that it names, since Java, Node.js, C++ and C# ask again 20 ms after that code.
- Of a send, "nothing was written" makes the proxy try another broker group first, unless the message has
  a message group; the client sees the failure only if no broker group can.

## When a master is lost

A call waits for the next master of its broker group and is made again there: at most for --failover-wait, and until shortly before
its caller's deadline. Then it is answered as below. It is made again where surely nothing was written (not leader, fenced, draining,
not enough replicas, unavailable), and after an unknown outcome, where a second time changes nothing:

| call | a second time |
| --- | --- |
| SendMessage | on the same broker group alone, which finds the first one by its message id; where its duplicate window may not have it, the answer is PROXY_TIMEOUT |
| ReceiveMessage | waits on; with its attempt id it gets the messages that were leased to it |
| AckMessage | what is acknowledged is OK again |
| ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue | the same; PROXY_TIMEOUT if the lease is over, since the first time may have ended it |
| RecallMessage, EndTransaction | the same verdict once more is OK |
| PullMessage, GetOffset, QueryOffset | reads |
| UpdateOffset, SyncLiteSubscription | states the same again |

`

func document() []byte {
	var b bytes.Buffer
	b.WriteString(outcomesIntro)
	b.WriteString("## From failure to code\n\n| kind | code | text | why | except |\n| --- | --- | --- | --- | --- |\n")
	for _, kind := range mqerr.Kinds() {
		a := outcomes[kind]
		fmt.Fprintf(&b, "| %v | %s | %s | %s | %s |\n", kind, codeText(a.code), a.text, a.why, exceptionsOf(kind))
	}
	b.WriteString("\n## What clients do\n\nA client that tries a send again uses the same message id.\n")
	for _, rpc := range rpcs() {
		fmt.Fprintf(&b, "\n### %v\n", rpc)
		groups := groupsOf(rpc)
		slices.SortStableFunc(groups, func(a, b codeGroup) int { return len(a.codes) - len(b.codes) })
		for i, g := range groups {
			name := strings.Join(g.codes, ", ")
			if i == len(groups)-1 {
				name = "any other code"
			}
			if len(groups) == 1 {
				name = "any code"
			}
			writeReaction(&b, name, g.does)
		}
	}
	return b.Bytes()
}

func writeReaction(b *bytes.Buffer, codes string, r reaction) {
	if r.Java == r.Rust { // everyClient
		fmt.Fprintf(b, "\n%s: every client %s.\n", codes, r.Java)
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n", codes)
	for _, c := range []struct{ name, does string }{
		{"Java", r.Java}, {"Go", r.Go}, {"Python", r.Python}, {"Node.js", r.Node}, {"Rust", r.Rust}, {"C++", r.Cpp}, {"C#", r.CSharp},
	} {
		fmt.Fprintf(b, "- %s: %s\n", c.name, c.does)
	}
}

func codeText(c rmqv2.Code) string { return fmt.Sprintf("%d %v", c, c) }

func exceptionsOf(kind mqerr.Kind) string {
	var parts []string
	for _, rpc := range rpcs() {
		if a, ok := exceptions[outcomeKey{kind, rpc}]; ok {
			parts = append(parts, fmt.Sprintf("%v: %v (%s)", rpc, codeText(a.code), a.why))
		}
	}
	return strings.Join(parts, "; ")
}

// codeGroup are codes of a call to which clients react in the same way.
type codeGroup struct {
	codes []string
	does  reaction
}

func groupsOf(rpc RPC) []codeGroup {
	var groups []codeGroup
	for _, code := range codesOf(rpc) {
		r, _ := reactionTo(rpc, code)
		r.code = 0
		i := slices.IndexFunc(groups, func(g codeGroup) bool { return g.does == r })
		if i < 0 {
			i = len(groups)
			groups = append(groups, codeGroup{does: r})
		}
		groups[i].codes = append(groups[i].codes, code.String())
	}
	return groups
}

// codesOf lists what a call can answer, each once.
func codesOf(rpc RPC) []rmqv2.Code {
	var codes []rmqv2.Code
	for _, kind := range mqerr.Kinds() {
		if code := answerFor(kind, rpc).code; !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	return codes
}
