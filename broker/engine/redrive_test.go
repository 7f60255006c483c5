package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

func (b *bench) redrive(req brokerapi.RedriveRequest) *brokerapi.RedriveReply {
	b.t.Helper()
	req.Dead = brokerapi.TopicID(topicDead)
	r, err := b.proxy.Redrive(b.t.Context(), &req)
	require.NoError(b.t, err)
	return r
}

// withLetters has dead letters of group b with these bodies, in this order.
func (b *bench) withLetters(t record.TopicID, texts ...string) map[string]got {
	b.t.Helper()
	from := map[string]got{}
	for _, text := range texts {
		b.mustSend(t, text)
		m := b.mustPop(t, groupB)
		require.Len(b.t, m, 1)
		errs, err := b.forward(t, groupB, m[0])
		require.NoError(b.t, err)
		require.NoError(b.t, errs[0])
		from[text] = m[0]
	}
	return from
}

func deadBench(t *testing.T) *bench {
	t.Helper()
	o := Options{}
	wantsTopics(&o)
	b := newBench(t, o)
	b.mustOpen()
	b.define()
	b.defineDead()
	return b
}

// TestRedrive: letters go back to their queue, each once, as the messages they were; who reads the
// dead-letter topic later no longer finds them. What they went through stays known.
func TestRedrive(t *testing.T) {
	b := deadBench(t)
	from := b.withLetters(topicSync, "a", "b", "c")
	require.Equal(t, &brokerapi.RedriveReply{Left: 3}, b.redrive(brokerapi.RedriveRequest{}))
	r := b.redrive(brokerapi.RedriveRequest{Max: 2})
	require.Equal(t, []any{2, int64(1)}, []any{r.Redriven, r.Left})
	r = b.redrive(brokerapi.RedriveRequest{Max: 100, After: r.Next})
	require.Equal(t, []any{1, int64(0)}, []any{r.Redriven, r.Left})
	require.Equal(t, &brokerapi.RedriveReply{}, b.redrive(brokerapi.RedriveRequest{Max: 100}), "nothing is left")
	require.Empty(t, b.mustPop(topicDead, groupA))
	ms := b.mustPop(topicSync, groupB)
	require.ElementsMatch(t, []string{"a", "b", "c"}, bodies(ms))
	for _, m := range ms {
		require.Equal(t, from[m.body].Queue, m.Queue)
		require.EqualValues(t, 1, m.Attempt)
		require.Empty(t, m.User)
		require.Empty(t, m.Sys)
	}
	before := b.views()
	b.kill()
	b.fs.(*memfs.FS).Restart()
	require.Equal(t, before, b.replayed())
	b.mustOpen()
	require.EqualValues(t, 0, b.redrive(brokerapi.RedriveRequest{}).Left)
	b.clock.advance(31 * time.Second)
	for _, m := range b.mustPop(topicSync, groupB) {
		_, err := b.forward(topicSync, groupB, m)
		require.NoError(t, err)
	}
	for _, m := range b.popDead(3) {
		p := properties(t, m.Delivery)
		require.Equal(t, "3", p["DEAD_LETTER_ATTEMPTS"], "one delivery before, two since")
		require.Equal(t, fmt.Sprint(1_700_000_000_000), p["DEAD_LETTER_FIRST_DELIVERY"])
	}
}

// TestRedriveElsewhere: to another topic if that is asked for; what has no way back stays, with the reason.
func TestRedriveElsewhere(t *testing.T) {
	b := deadBench(t)
	b.withLetters(topicSync, "lost")
	b.mustSend(topicDead, "sent there")
	b.withLetters(topicAsync, "way back")
	require.NoError(t, b.engine.Define(t.Context(), &Definitions{DeletedTopics: []record.TopicID{topicSync}, Version: 20}))
	r := b.redrive(brokerapi.RedriveRequest{Max: 100})
	require.Equal(t, []any{1, int64(2)}, []any{r.Redriven, r.Left})
	require.Len(t, r.Failed, 2)
	require.Contains(t, r.Failed[0], "does not exist here any more")
	require.Contains(t, r.Failed[1], "say where")
	require.Equal(t, []string{"way back"}, bodies(b.mustPop(topicAsync, groupB)))
	rest := b.redrive(brokerapi.RedriveRequest{Max: 100, After: r.Next})
	require.Zero(t, rest.Redriven, "behind what was looked at there is nothing")
	r = b.redrive(brokerapi.RedriveRequest{Max: 100, To: brokerapi.TopicID(topicAsync)})
	require.Equal(t, []any{2, int64(0)}, []any{r.Redriven, r.Left})
	require.ElementsMatch(t, []string{"lost", "sent there"}, bodies(b.mustPop(topicAsync, groupB)))
	for _, req := range []brokerapi.RedriveRequest{{Dead: 99, Max: 1}, {Dead: brokerapi.TopicID(topicDead), To: 99, Max: 1}} {
		_, err := b.proxy.Redrive(t.Context(), &req)
		require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
	}
	_, err := b.proxy.Redrive(t.Context(), &brokerapi.RedriveRequest{Dead: brokerapi.TopicID(topicDead), Max: 5000})
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
}

// TestRedriveTwiceAtOnce: two operators at the same moment move each letter once.
func TestRedriveTwiceAtOnce(t *testing.T) {
	b := deadBench(t)
	var texts []string
	for i := range 40 {
		texts = append(texts, fmt.Sprint(i))
	}
	b.withLetters(topicSync, texts...)
	req := &brokerapi.RedriveRequest{Dead: brokerapi.TopicID(topicDead), Max: 100}
	both, replies := [2]redrive{{req: req}, {req: req}}, [2]brokerapi.RedriveReply{}
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		for i := range both {
			if err := both[i].find(w); err != nil {
				t.Error(err)
			}
		}
	}))
	for i := range both {
		require.NoError(t, both[i].read(t.Context(), b.engine))
	}
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		for i := range both {
			both[i].write(w, &replies[i])
		}
	}))
	for i := range both {
		for j := range both[i].list {
			both[i].list[j].b.ref.Release()
		}
	}
	require.Equal(t, 40, replies[0].Redriven)
	require.Zero(t, replies[1].Redriven)
	require.Len(t, replies[1].Failed, 40)
	var all []got
	for len(all) < 40 {
		all = append(all, b.mustPop(topicSync, groupB)...)
	}
	require.ElementsMatch(t, texts, bodies(all))
	require.Empty(t, b.mustPop(topicSync, groupB))
}

// TestRedrivePowerCut: the power goes at every write of a redrive. Afterwards each letter is in exactly one
// of the two topics, and a second redrive moves the rest.
//
//fault:power the power goes at every write of a redrive => each dead letter is in exactly one of the two topics; a second redrive moves the rest
func TestRedrivePowerCut(t *testing.T) {
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	for cut := 1; cut <= 12; cut++ {
		b := deadBench(t)
		b.withLetters(topicSync, "a", "b", "c", "d")
		fs := b.fs.(*memfs.FS)
		fs.CutPower(cut)
		answered := 0
		for {
			r, err := b.proxy.Redrive(t.Context(), &brokerapi.RedriveRequest{Dead: brokerapi.TopicID(topicDead), Max: 1})
			if err != nil || r.Redriven == 0 {
				break
			}
			answered += r.Redriven
		}
		b.kill()
		b.fs = fs.Crash(rng, 0.5)
		b.mustOpen()
		back := bodies(b.mustPop(topicSync, groupB))
		left := b.redrive(brokerapi.RedriveRequest{}).Left
		require.GreaterOrEqual(t, len(back), answered, "cut %d", cut)
		require.EqualValues(t, 4, int64(len(back))+left, "cut %d", cut)
		b.redrive(brokerapi.RedriveRequest{Max: 100})
		require.ElementsMatch(t, []string{"a", "b", "c", "d"}, append(back, bodies(b.mustPop(topicSync, groupB))...), "cut %d", cut)
		require.Empty(t, b.mustPop(topicDead, groupA))
		b.kill()
	}
}
