package ctl

import (
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/route"
)

// update turns what the controller says into a change of the table.
func update(m *controllerv1.WatchUpdate) route.Update {
	d := m.GetDefinitions()
	u := route.Update{Full: d.GetFull()}
	for _, t := range d.GetTopics() {
		u.Topics = append(u.Topics, topic(t))
	}
	for _, g := range d.GetGroups() {
		u.Groups = append(u.Groups, group(g))
	}
	for _, id := range d.GetDeletedTopics() {
		u.DeletedTopics = append(u.DeletedTopics, brokerapi.TopicID(id))
	}
	for _, id := range d.GetDeletedGroups() {
		u.DeletedGroups = append(u.DeletedGroups, brokerapi.GroupID(id))
	}
	for _, s := range m.GetShards() {
		u.Shards = append(u.Shards, shard(s))
	}
	for _, k := range m.GetHandleKeys() {
		if len(k.GetKey()) == 16 && k.GetId() >= 1 && k.GetId() <= 255 {
			u.Keys = append(u.Keys, route.HandleKey{ID: uint8(k.GetId()), Key: [16]byte(k.GetKey())})
		}
	}
	return u
}

// topicTypes exists so that the two lists of numbers cannot drift apart unseen.
var topicTypes = map[controllerv1.TopicType]route.TopicType{
	controllerv1.TopicType_TOPIC_TYPE_NORMAL:      route.Normal,
	controllerv1.TopicType_TOPIC_TYPE_FIFO:        route.FIFO,
	controllerv1.TopicType_TOPIC_TYPE_DELAY:       route.Delay,
	controllerv1.TopicType_TOPIC_TYPE_TRANSACTION: route.Transaction,
	controllerv1.TopicType_TOPIC_TYPE_LITE:        route.Lite,
	controllerv1.TopicType_TOPIC_TYPE_PRIORITY:    route.Priority,
	controllerv1.TopicType_TOPIC_TYPE_MIXED:       route.Mixed,
}

func topic(t *controllerv1.Topic) route.Topic {
	out := route.Topic{
		ID: brokerapi.TopicID(t.GetId()), Name: t.GetName(), Type: topicTypes[t.GetType()], Layout: t.GetLayoutVersion(),
		Limits: route.Limits{MaxDelay: max(0, time.Duration(t.GetLimits().GetMaxDelayMs())*time.Millisecond)},
	}
	for _, p := range t.GetPlacements() {
		if p.GetQueues() > 0 {
			out.Placements = append(out.Placements, route.Placement{Shard: brokerapi.ShardID(p.GetShard()), Queues: p.GetQueues()})
		}
	}
	return out
}

func group(g *controllerv1.Group) route.Group {
	out := route.Group{
		ID: brokerapi.GroupID(g.GetId()), Name: g.GetName(), Ordered: g.GetOrdered(), MaxAttempts: g.GetMaxAttempts(), LiteTopic: g.GetLiteTopic(),
	}
	for _, ms := range g.GetBackoffMs() {
		out.Backoff = append(out.Backoff, time.Duration(ms)*time.Millisecond)
	}
	if x := g.GetExponential(); x.GetInitialMs() > 0 && x.GetMultiplierMilli() >= 1000 {
		out.Growth = route.Growth{
			Initial: time.Duration(x.GetInitialMs()) * time.Millisecond, Max: time.Duration(x.GetMaxMs()) * time.Millisecond,
			Multiplier: float64(x.GetMultiplierMilli()) / 1000,
		}
		out.Backoff = out.Growth.Delays(g.GetMaxAttempts())
	}
	return out
}

func shard(s *controllerv1.Shard) route.Shard {
	out := route.Shard{
		ID: brokerapi.ShardID(s.GetId()), Name: s.GetName(), Epoch: brokerapi.Epoch(s.GetEpoch()),
		HasMaster: s.GetMaster() != 0, Live: s.GetLive(),
	}
	for _, r := range s.GetReplicas() {
		if r.GetId() == s.GetMaster() {
			out.Address = r.GetAddress()
		}
	}
	return out
}
