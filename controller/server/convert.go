package server

import (
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func topicProto(t *state.Topic) *controllerv1.Topic {
	p := &controllerv1.Topic{
		Id: uint32(t.ID), Name: t.Name, Type: typeToProto[t.Type], Flush: controllerv1.FlushPolicy(t.Flush),
		Version: uint64(t.Version), CreatedVersion: uint64(t.Created), CreatedMs: t.CreatedMS,
		Limits: limitsProto(t.Limits),
	}
	p.LayoutVersion = uint64(t.Layout)
	if g := t.Growing; g != nil {
		p.Growing = &controllerv1.Growing{Queues: int32(g.Queues), BeganVersion: uint64(g.Began), UntilMs: g.UntilMS}
	}
	for _, x := range t.Placements {
		p.Placements = append(p.Placements, &controllerv1.Placement{Shard: uint32(x.Shard), Queues: int32(x.Queues)})
	}
	return p
}

// typeToProto exists so that the two lists of numbers can't drift apart unseen; a test walks it.
var typeToProto = map[state.TopicType]controllerv1.TopicType{
	state.Normal:      controllerv1.TopicType_TOPIC_TYPE_NORMAL,
	state.FIFO:        controllerv1.TopicType_TOPIC_TYPE_FIFO,
	state.Delay:       controllerv1.TopicType_TOPIC_TYPE_DELAY,
	state.Transaction: controllerv1.TopicType_TOPIC_TYPE_TRANSACTION,
	state.Lite:        controllerv1.TopicType_TOPIC_TYPE_LITE,
	state.Priority:    controllerv1.TopicType_TOPIC_TYPE_PRIORITY,
	state.Mixed:       controllerv1.TopicType_TOPIC_TYPE_MIXED,
}

func groupProto(g *state.Group) *controllerv1.Group {
	p := &controllerv1.Group{
		Id: uint32(g.ID), Name: g.Name, Ordered: g.Ordered, MaxAttempts: int32(g.MaxAttempts), From: controllerv1.StartFrom(g.From), FromMs: g.FromMS,
		LiteTopic: g.LiteTopic, BackoffMs: g.BackoffMS, Version: uint64(g.Version), CreatedVersion: uint64(g.Created), CreatedMs: g.CreatedMS,
		MaxInFlight: g.MaxInFlight, MaxInFlightClient: g.MaxInFlightClient,
	}
	if x := g.Exponential; x != nil {
		p.Exponential = &controllerv1.Exponential{InitialMs: x.InitialMS, MaxMs: x.MaxMS, MultiplierMilli: int32(x.Multiplier)}
	}
	return p
}

func shardProto(h *state.Shard, live bool) *controllerv1.Shard {
	p := &controllerv1.Shard{
		Id: uint32(h.ID), Name: h.Name, Epoch: uint64(h.Epoch), Master: uint32(h.Master),
		SetVersion: h.SetVersion, AppliedVersion: uint64(h.Applied), Live: live,
		MasterIncarnation: uint64(h.MasterInc), MinIsr: int32(h.MinISR), CommitMode: commitProto(h.Commit), DataLosses: h.DataLoss,
	}
	for _, id := range h.ELR {
		p.Elr = append(p.Elr, uint32(id))
	}
	for _, id := range h.Set {
		p.SyncStateSet = append(p.SyncStateSet, uint32(id))
	}
	for _, r := range h.Replicas {
		p.Replicas = append(p.Replicas, &controllerv1.Replica{Id: uint32(r.ID), Uuid: r.UUID[:], Address: r.Address, Incarnation: uint64(r.Incarnation), Unclean: r.Unclean, Learner: r.Learner})
	}
	return p
}

func commitProto(c state.Commit) controllerv1.CommitMode {
	if c == state.Memory {
		return controllerv1.CommitMode_COMMIT_MODE_MEMORY
	}
	return controllerv1.CommitMode_COMMIT_MODE_DURABLE
}

// commitOf is the reverse of commitProto; unspecified is durable.
func commitOf(m controllerv1.CommitMode) (state.Commit, error) {
	switch m {
	case controllerv1.CommitMode_COMMIT_MODE_UNSPECIFIED, controllerv1.CommitMode_COMMIT_MODE_DURABLE:
		return state.Durable, nil
	case controllerv1.CommitMode_COMMIT_MODE_MEMORY:
		return state.Memory, nil
	}
	return 0, mqerr.New(mqerr.Invalid, "unknown commit mode %d", m)
}

func keyProtos(keys state.Keys) []*controllerv1.HandleKey {
	var out []*controllerv1.HandleKey
	for _, k := range keys {
		out = append(out, &controllerv1.HandleKey{Id: uint32(k.ID), Key: k.Secret[:]})
	}
	return out
}

func definitionsProto(u registry.Update) *controllerv1.Definitions {
	d := &controllerv1.Definitions{Version: uint64(u.Version), Full: u.Full}
	for _, t := range u.Topics {
		d.Topics = append(d.Topics, topicProto(t))
	}
	for _, g := range u.Groups {
		d.Groups = append(d.Groups, groupProto(g))
	}
	for _, id := range u.DeletedTopics {
		d.DeletedTopics = append(d.DeletedTopics, uint32(id))
	}
	for _, id := range u.DeletedGroups {
		d.DeletedGroups = append(d.DeletedGroups, uint32(id))
	}
	return d
}
