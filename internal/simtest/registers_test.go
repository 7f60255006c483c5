package simtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/ctl"
)

// register is what a controller says of a broker group: epoch, master, SyncStateSet and its version. It only moves
// forward. Key orders its values.
type register struct {
	epoch, version uint64
	vacant         bool // the master has resigned: neither epoch nor version tell
	master         uint32
	inc            uint64
	set            string
}

func registerOf(h *controllerv1.Shard) register {
	return register{h.GetEpoch(), h.GetSetVersion(), h.GetMaster() == 0, h.GetMaster(), h.GetMasterIncarnation(), fmt.Sprint(h.GetSyncStateSet())}
}

func (r register) compare(o register) int {
	free := func(r register) int {
		if r.vacant {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(r.epoch, o.epoch), cmp.Compare(r.version, o.version), cmp.Compare(free(r), free(o)))
}

// call is an operation on a register: a read, or a change of the set if the register is as expected.
type call struct {
	shard  uint32
	alters bool
	expect register // epoch and version
	set    string
}

// said is the answer to it.
type said struct {
	known    bool
	accepted bool
	reg      register
}

// registers takes down the operations of brokers and observers on the registers, for A10.
type registers struct {
	mu    sync.Mutex
	ops   []porcupine.Operation
	known map[uint32]map[string]register // by shard, epoch and version: what was said first
	bad   []string
}

func newRegisters() *registers { return &registers{known: map[uint32]map[string]register{}} }

// listener is a connection to the controllers whose operations on registers are taken down.
type listener struct {
	grpc.ClientConnInterface
	r *registers
}

func (r *registers) listen(_ string, conn grpc.ClientConnInterface) grpc.ClientConnInterface {
	return listener{conn, r}
}

// Invoke implements grpc.ClientConnInterface.
func (l listener) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	began := boot()
	err := l.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	switch req := args.(type) {
	case *controllerv1.AlterSyncStateSetRequest:
		c := call{shard: req.GetShard(), alters: true, expect: register{epoch: req.GetEpoch(), version: req.GetSetVersion()}}
		var set []uint32
		for _, m := range req.GetSet() {
			set = append(set, m.GetId())
		}
		slices.Sort(set)
		c.set = fmt.Sprint(set)
		resp := reply.(*controllerv1.AlterSyncStateSetResponse)
		out := said{}
		if err == nil && resp.GetShard() != nil {
			out = said{known: true, accepted: resp.GetAccepted(), reg: registerOf(resp.GetShard())}
		}
		l.r.add(began, c, out)
	case *controllerv1.RegisterRequest:
		if h := reply.(*controllerv1.RegisterResponse).GetShard(); err == nil && h != nil {
			l.r.add(began, call{shard: h.GetId()}, said{known: true, reg: registerOf(h)})
		}
	}
	return err
}

// add takes down an operation that ends now.
func (r *registers) add(began time.Duration, c call, out said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := boot().Nanoseconds()
	if !out.known {
		if c.expect.epoch == 0 {
			return // a read without an answer
		}
		end = int64(time.Hour) // it may be carried out yet
	}
	r.ops = append(r.ops, porcupine.Operation{ClientId: len(r.ops), Input: c, Output: out, Call: began.Nanoseconds(), Return: end})
	if out.known {
		r.sameLocked(c.shard, out.reg)
	}
}

// sameLocked checks that one version of a register is one thing: an epoch has one master (I1), a version one set.
func (r *registers) sameLocked(shard uint32, x register) {
	if r.known[shard] == nil {
		r.known[shard] = map[string]register{}
	}
	key := fmt.Sprint(x.epoch, " ", x.version, " ", x.vacant)
	if was, is := r.known[shard][key]; is && was != x {
		r.bad = append(r.bad, fmt.Sprintf("I1: shard %d is %+v and %+v", shard, was, x))
	}
	r.known[shard][key] = x
}

// model is a register that moves forward by itself (elections), and by accepted proposals exactly as they say.
var model = porcupine.NondeterministicModel{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		by := map[uint32][]porcupine.Operation{}
		for _, o := range ops {
			by[o.Input.(call).shard] = append(by[o.Input.(call).shard], o)
		}
		var out [][]porcupine.Operation
		for _, p := range by {
			out = append(out, p)
		}
		return out
	},
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		is, c, o := state.(register), input.(call), output.(said)
		after := register{epoch: c.expect.epoch, version: c.expect.version + 1, set: c.set}
		carried := c.alters && is.compare(register{epoch: c.expect.epoch, version: c.expect.version}) <= 0
		switch {
		case !o.known && carried:
			return []any{is, after}
		case !o.known:
			return []any{is}
		case o.accepted:
			if !carried || o.reg.compare(after) < 0 || o.reg.compare(after) == 0 && o.reg.set != c.set {
				return nil
			}
			return []any{after}
		case o.reg.compare(is) < 0:
			return nil
		}
		return []any{o.reg}
	},
	Equal:             func(a, b any) bool { return a.(register).compare(b.(register)) == 0 },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// check judges what was taken down. Searching is given up after a while: then it says nothing.
func (r *registers) check() (faults []string, ops int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	faults = r.bad
	if porcupine.CheckOperationsTimeout(model.ToModel(), r.ops, 20*time.Second) == porcupine.Illegal {
		faults = append(faults, "A10: no order of the operations explains what the controllers answered")
	}
	return faults, len(r.ops)
}

// observe reads the registers again and again: a proposal that cannot be accepted is answered by the leader after a
// round of consensus, with the register as it is then.
func (s *sim) observe(ctx context.Context, conn grpc.ClientConnInterface) {
	client := ctl.New(s.reg.listen("observer", conn), nil)
	rpc := controllerv1.NewControllerServiceClient(conn)
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		st, err := rpc.Status(call, &controllerv1.StatusRequest{})
		if err == nil {
			for _, h := range st.GetShards() {
				_, _, _ = client.Alter(call, h.GetId(), &controllerv1.Hello{Version: ctl.ProtocolVersion, ClusterId: st.GetClusterId()}, noProposal)
			}
		}
		cancel()
		pause(ctx, 200*time.Millisecond)
	}
}
