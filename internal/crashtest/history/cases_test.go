package history

const ms = Time(1e6)

// call makes a call from a begin to an end, in ms.
func call(k Kind, from, to Time, o Outcome, items ...Item) Op {
	for i := range items {
		if items[i].Outcome == Unknown {
			items[i].Outcome = o
		}
	}
	op := Op{Kind: k, Topic: "t", Group: "g", Began: from * ms, Ended: to * ms, Outcome: o, Items: items}
	if to < 0 {
		op.Ended = Never
	}
	if k == Receive {
		op.For = 1000 * ms
	}
	return op
}

func (o Op) with(change func(*Op)) Op { change(&o); return o }

// sent is a message in a send that was answered without an offset.
func sent(id string) Item { return Item{ID: id, Body: id, Offset: -1} }

// came is a delivery.
func came(id string, offset int64, lease int, at Time) Item {
	return Item{ID: id, Body: id, Place: Place{Topic: "t", Broker: "b", Offset: offset}, Attempt: 1, Lease: lease, At: at * ms}
}

func (it Item) again(attempt int32) Item { it.Attempt = attempt; return it }

func (it Item) keyed(key string) Item { it.Key = key; return it }

func lease(id string, n int) Item { return Item{ID: id, Lease: n} }

func named(o Op, names ...string) Op { o.Names = names; return o }

// drainedRules are those of a history at its end.
var drainedRules = Rules{OneHome: true, Drained: true, Reads: []Sub{{"g", "t"}}}

// cases are histories that break one rule each, and good ones.
var cases = []struct {
	name  string
	rule  string // that is broken; none
	rules Rules
	ops   []Op
}{
	{"a message is sent, comes and is acknowledged", "", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)),
	}},
	{"it comes again after its lease", "", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)),
		call(Receive, 900, 1010, OK, came("m", 0, 2, 1006).again(2)), call(Ack, 1010, 1020, OK, lease("m", 2)),
	}},
	{"it comes again inside its lease", "nothing comes twice inside a lease", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Receive, 900, 1010, OK, came("m", 0, 2, 1004).again(2)),
	}},
	{"it comes again inside a lease that was made longer", "nothing comes twice inside a lease", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)),
		call(Change, 20, 25, OK, lease("m", 1)).with(func(o *Op) { o.For = 5000 * ms }), call(Receive, 1500, 1510, OK, came("m", 0, 2, 1504).again(2)),
	}},
	{"it was given back, perhaps", "", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)),
		call(Change, 20, -1, Unknown, lease("m", 1)), call(Receive, 25, 30, OK, came("m", 0, 2, 28).again(2)),
	}},
	{"an answer broke, so its lease may have been given back", "", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, Unknown, came("m", 0, 1, 15)), call(Receive, 25, 30, OK, came("m", 0, 2, 28)),
	}},
	{"its consumer said goodbye", "", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Goodbye, 30, 40, OK), call(Receive, 41, 50, OK, came("m", 0, 2, 45)),
	}},
	{"another consumer said goodbye", "nothing comes twice inside a lease", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Goodbye, 30, 40, OK).with(func(o *Op) { o.Client = "other" }),
		call(Receive, 41, 50, OK, came("m", 0, 2, 45)),
	}},
	{"it comes after its ack", "nothing comes after its ack", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)),
		call(Receive, 2000, 2010, OK, came("m", 0, 2, 2005)),
	}},
	{"the next attempt was handed out though this one was acknowledged", "nothing comes after its ack", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 1990, 2008, OK, lease("m", 1)),
		call(Receive, 2000, 2010, OK, came("m", 0, 2, 2005).again(2)),
	}},
	{"the next attempt was acknowledged before this ack was answered", "", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 500, 2050, OK, lease("m", 1)),
		call(Receive, 2000, 2010, OK, came("m", 0, 2, 2005).again(2)), call(Ack, 2020, 2030, OK, lease("m", 2)),
	}},
	{"the next attempt was acknowledged, but only after this ack was answered", "nothing comes after its ack", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 500, 2015, OK, lease("m", 1)),
		call(Receive, 2000, 2010, OK, came("m", 0, 2, 2005).again(2)), call(Ack, 2020, 2030, OK, lease("m", 2)),
	}},
	{"it comes after its forward", "nothing comes after its forward", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)),
		call(Receive, 2000, 2010, OK, came("m", 0, 2, 2005)),
	}},
	{"the outcome of its ack is unknown, and it comes again", "", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, -1, Unknown, lease("m", 1)),
		call(Receive, 2000, 2010, OK, came("m", 0, 2, 2005).again(2)), call(Ack, 2010, 2020, OK, lease("m", 2)),
	}},
	{"an ack inside the lease is answered that nobody knows it", "a lease that holds is known", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 500, 510, Fail, Item{ID: "m", Lease: 1, Invalid: true}),
	}},
	{"an ack after the lease is answered so", "", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 990, 1010, Fail, Item{ID: "m", Lease: 1, Invalid: true}),
	}},
	{"nothing is left of a message that was answered", "what was answered is stored", drainedRules, []Op{call(Send, 0, 10, OK, sent("m"))}},
	{"a group never got it", "everything comes until it is acknowledged", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)).with(func(o *Op) { o.Group = "audit" }),
	}},
	{"it was not acknowledged and comes no more", "everything comes until it is acknowledged", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)),
	}},
	{"its send has no answer, and it is not there", "", drainedRules, []Op{call(Send, 0, -1, Unknown, sent("m"))}},
	{"its send was refused, and it is there", "what was refused is not stored", Rules{}, []Op{
		call(Send, 0, 10, Fail, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)),
	}},
	{"its send has no answer, and it is there twice", "a message is stored once for each try", Rules{}, []Op{
		call(Send, 0, -1, Unknown, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15), came("m", 1, 2, 15)),
	}},
	{"two tries may be two copies, where ids have no home", "", Rules{}, []Op{
		call(Send, 0, -1, Unknown, sent("m")), call(Send, 10, 20, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15), came("m", 1, 2, 15)),
	}},
	{"two tries are one copy, where they have", "a message is stored once for each try", Rules{OneHome: true}, []Op{
		call(Send, 0, -1, Unknown, sent("m")), call(Send, 10, 20, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15), came("m", 1, 2, 15)),
	}},
	{"a message that nobody sent", "what comes was sent", Rules{}, []Op{call(Receive, 5, 20, OK, came("m", 0, 1, 15))}},
	{"another body", "what comes was sent", Rules{}, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "other", Offset: -1}), call(Receive, 5, 20, OK, came("m", 0, 1, 15)),
	}},
	{"a place that changes its message", "a place holds one message", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m"), sent("n")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Receive, 25, 30, OK, came("n", 0, 2, 28)).with(func(o *Op) { o.Group = "h" }),
	}},
	{"another place than was answered", "a message is where its send was answered", drainedRules, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: 7}), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)),
	}},
	{"half of a call", "a call stores all or nothing", drainedRules, []Op{
		call(Send, 0, -1, Unknown, sent("m"), sent("n")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)),
	}},
	{"too early", "nothing comes before its time", Rules{}, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Receive, 5, 20, OK, came("m", 0, 1, 400)),
	}},
	{"in time", "", Rules{}, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Receive, 5, 600, OK, came("m", 0, 1, 501)),
	}},
	{"recalled, and comes", "what was recalled never comes", Rules{}, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Recall, 20, 30, OK, sent("m")), call(Receive, 5, 600, OK, came("m", 0, 1, 501)),
	}},
	{"recalled, and does not come", "", drainedRules, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Recall, 20, 30, OK, sent("m")),
	}},
	{"too late for a recall, and does not come", "what was answered is stored", drainedRules, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Recall, 490, 510, Fail, sent("m")),
	}},
	{"too late for a recall, long before its time", "a recall in time succeeds", Rules{}, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Recall, 20, 30, Fail, Item{ID: "m", Invalid: true}),
	}},
	{"a recall is refused by a service that starts", "", Rules{}, []Op{
		call(Send, 0, 10, OK, Item{ID: "m", Body: "m", Offset: -1, Due: 500 * ms}), call(Recall, 20, 30, Fail, sent("m")),
	}},
	{"committed, and comes", "", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")).with(isHalf), call(Commit, 20, 30, OK, sent("m")), call(Receive, 5, 40, OK, came("m", 0, 1, 25)), call(Ack, 40, 50, OK, lease("m", 1)),
	}},
	{"committed, and does not come", "what was committed is there", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")).with(isHalf), call(Commit, 20, 30, OK, sent("m")),
	}},
	{"nobody committed it", "only what was committed comes", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")).with(isHalf), call(Receive, 5, 40, OK, came("m", 0, 1, 25)), call(Commit, 30, 40, OK, sent("m")),
	}},
	{"rolled back, and comes", "what was rolled back never comes", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")).with(isHalf), call(Rollback, 20, 30, OK, sent("m")), call(Commit, 30, 40, Unknown, sent("m")), call(Receive, 5, 40, OK, came("m", 0, 1, 35)),
	}},
	{"a message group in order", "", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m").keyed("k")), call(Send, 11, 20, OK, sent("n").keyed("k")),
		call(Receive, 5, 30, OK, came("m", 0, 1, 25).keyed("k")), call(Ack, 30, 40, OK, lease("m", 1)),
		call(Receive, 35, 50, OK, came("n", 1, 2, 45).keyed("k")), call(Ack, 50, 60, OK, lease("n", 2)),
	}},
	{"the second comes while the first is not done", "a message group comes in order", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m").keyed("k")), call(Send, 11, 20, OK, sent("n").keyed("k")),
		call(Receive, 5, 30, OK, came("n", 1, 2, 25).keyed("k")), call(Receive, 1035, 1050, OK, came("m", 0, 1, 1045).keyed("k")),
	}},
	{"the second comes while a third is out", "of a message group one delivery is out", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m").keyed("k"), sent("n").keyed("k")),
		call(Receive, 5, 30, OK, came("m", 0, 1, 25).keyed("k"), came("n", 1, 2, 25).keyed("k")),
		call(Change, 30, 34, OK, lease("m", 1)), call(Receive, 35, 50, OK, came("m", 0, 3, 45).keyed("k").again(2)),
	}},
	{"what was sent later stands before", "what is sent later stands behind", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m").keyed("k")), call(Send, 11, 20, OK, sent("n").keyed("k")),
		call(Receive, 5, 30, OK, came("n", 0, 1, 25).keyed("k"), came("m", 1, 2, 25).keyed("k")),
	}},
	{"the messages of one call stand the wrong way round", "what is sent later stands behind", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m").keyed("k"), sent("n").keyed("k")),
		call(Receive, 5, 30, OK, came("n", 0, 1, 25).keyed("k"), came("m", 1, 2, 25).keyed("k")),
	}},
	{"a message group in two queues", "a message group has one queue", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m").keyed("k"), sent("n").keyed("k")),
		call(Receive, 5, 30, OK, came("m", 0, 1, 25).keyed("k"), came("n", 1, 2, 25).keyed("k")).with(func(o *Op) { o.Items[1].Place.Queue = 1 }),
	}},
	{"given up, and a dead letter", "", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)), letter("m", 0),
	}},
	{"given up, and no dead letter", "what is not acknowledged is a dead letter", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)),
	}},
	{"acknowledged, and a dead letter", "each dead letter is there once", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)), letter("m", 0),
	}},
	{"acknowledged behind the end of its lease, and a dead letter", "", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 2000, OK, lease("m", 1)), letter("m", 0),
	}},
	{"two dead letters of one message", "each dead letter is there once", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)), letter("m", 0), letter("m", 1),
	}},
	{"back from the dead letters", "", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)),
		call(Redrive, 30, 40, OK).with(func(o *Op) { o.Topic, o.N = "dead", 1 }), call(Receive, 45, 50, OK, came("m", 1, 2, 48)), call(Ack, 50, 60, OK, lease("m", 2)),
	}},
	{"a redrive that did nothing", "a dead letter comes back once", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)), letter("m", 0),
		call(Redrive, 30, 40, OK).with(func(o *Op) { o.Topic, o.N = "dead", 1 }),
	}},
	{"back, and still there", "each dead letter is there once", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)), letter("m", 0),
		call(Redrive, 30, 40, OK).with(func(o *Op) { o.Topic, o.N = "dead", 1 }), call(Receive, 45, 50, OK, came("m", 1, 2, 48)), call(Ack, 50, 60, OK, lease("m", 2)),
	}},
	{"back twice", "a dead letter comes back once", deadRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Forward, 20, 30, OK, lease("m", 1)),
		call(Redrive, 30, 40, OK).with(func(o *Op) { o.Topic, o.N = "dead", 1 }), call(Receive, 45, 50, OK, came("m", 1, 2, 48), came("m", 2, 3, 48)),
		call(Ack, 50, 60, OK, lease("m", 2)), call(Ack, 50, -1, Unknown, lease("m", 3)),
	}},
	{"a reset brings back what was acknowledged", "", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)), reset(0),
		call(Receive, 50, 60, OK, came("m", 0, 2, 55)), call(Ack, 60, 70, OK, lease("m", 2)),
	}},
	{"a reset that brought nothing back", "a reset brings things back", drainedRules, []Op{
		call(Send, 0, 10, OK, sent("m")), call(Receive, 5, 20, OK, came("m", 0, 1, 15)), call(Ack, 20, 30, OK, lease("m", 1)), reset(0),
	}},
	{"from behind a reset", "nothing comes from behind a reset", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m")), reset(1), call(Receive, 50, 60, OK, came("m", 0, 2, 55)),
	}},
	{"passed over by a reset, and deleted", "", Rules{Drained: true, Retention: true, Reads: []Sub{{"g", "t"}}}, []Op{call(Send, 0, 10, OK, sent("m")), reset(1)}},
	{"passed over by a reset, and lost", "what was answered is stored", drainedRules, []Op{call(Send, 0, 10, OK, sent("m")), reset(1)}},
	{"positions grow", "", Rules{}, []Op{position(SetOffset, 0, 10, OK, 5), position(SetOffset, 11, -1, Unknown, 7), position(GetOffset, 20, 30, OK, 7)}},
	{"a position went back", "stored positions never go back", Rules{}, []Op{
		position(SetOffset, 0, 10, OK, 5), position(SetOffset, 11, 15, OK, 7), position(GetOffset, 20, 30, OK, 5),
	}},
	{"a position that nobody stored", "stored positions never go back", Rules{}, []Op{position(SetOffset, 0, 10, OK, 5), position(GetOffset, 20, 30, OK, 6)}},
	{"a position is gone", "stored positions never go back", Rules{}, []Op{position(SetOffset, 0, 10, OK, 5), position(GetOffset, 20, 30, OK, -1)}},
	{"a pull with a hole", "a pull goes through its queue in order", Rules{}, []Op{
		call(Send, 0, 10, OK, sent("m"), sent("n")), position(Pull, 20, 30, OK, 4).with(func(o *Op) { o.Items = []Item{came("m", 4, 0, 25), came("n", 6, 0, 25)} }),
	}},
	{"a pull with a hole, where old messages go", "", Rules{Retention: true}, []Op{
		call(Send, 0, 10, OK, sent("m"), sent("n")), position(Pull, 20, 30, OK, 4).with(func(o *Op) { o.Items = []Item{came("m", 4, 0, 25), came("n", 6, 0, 25)} }),
	}},
	{"a topic is made and deleted", "", Rules{}, []Op{
		named(call(PutTopic, 0, 10, OK), "x"), named(call(Topics, 11, 12, OK), "x"), named(call(DelTopic, 20, 30, OK), "x"), named(call(Topics, 31, 32, OK)),
	}},
	{"a topic is gone", "changes of topics and groups stand", Rules{}, []Op{named(call(PutTopic, 0, 10, OK), "x"), named(call(Topics, 11, 12, OK))}},
	{"a topic is there again", "changes of topics and groups stand", Rules{}, []Op{
		named(call(PutTopic, 0, 10, OK), "x"), named(call(DelTopic, 20, 30, OK), "x"), named(call(Topics, 31, 32, OK), "x"),
	}},
	{"a group has its old value", "changes of groups stand", Rules{}, []Op{
		group(PutGroup, 0, 10, 3), group(PutGroup, 11, 20, 4), group(Groups, 21, 22, 3),
	}},
	{"a list shows what was a little before", "", Rules{Stale: 20 * ms}, []Op{
		group(PutGroup, 0, 10, 3), group(PutGroup, 11, 20, 4), group(Groups, 39, 40, 3),
		named(call(PutTopic, 0, 10, OK), "x"), named(call(Topics, 29, 30, OK)), named(call(DelTopic, 31, 40, OK), "x"), named(call(Topics, 59, 60, OK), "x"),
	}},
	{"a list shows what was long before", "changes of groups stand", Rules{Stale: 20 * ms}, []Op{
		group(PutGroup, 0, 10, 3), group(PutGroup, 11, 20, 4), group(Groups, 41, 42, 3),
	}},
	{"a group has its new value", "", Rules{}, []Op{group(PutGroup, 0, 10, 3), group(PutGroup, 11, 20, 4), group(Groups, 21, 22, 4)}},
}

var deadRules = Rules{OneHome: true, Drained: true, Letters: map[string]string{"t": "dead"}, Reads: []Sub{{"g", "t"}}}

func isHalf(o *Op) { o.N = HalfMessage }

// letter is the dead letter of a message, as the audit finds it.
func letter(id string, offset int64) Op {
	it := came(id, offset, 0, 95)
	it.Place.Topic = "dead"
	o := call(Receive, 90, 100, OK, it)
	o.Group, o.Topic = "audit", "dead"
	return o
}

func reset(to int64) Op {
	o := call(Reset, 35, 40, OK)
	o.Queues = []Queue{{Topic: "t", Broker: "b", To: to}}
	return o
}

func position(k Kind, from, to Time, out Outcome, n int64) Op {
	o := call(k, from, to, out)
	o.N, o.Queues = n, []Queue{{Topic: "t", Broker: "b"}}
	return o
}

func group(k Kind, from, to Time, n int64) Op {
	o := named(call(k, from, to, OK), "x")
	o.N, o.Values = n, []int64{n}
	return o
}
