package ctl

import (
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/store/record"
)

// definitions are the controller's definitions as far as they concern the shard: topics of which it
// serves no queue are left out.
func definitions(d *controllerv1.Definitions, shard uint32) *engine.Definitions {
	out := &engine.Definitions{Full: d.GetFull(), Version: d.GetVersion()}
	for _, t := range d.GetTopics() {
		for _, p := range t.GetPlacements() {
			if p.GetShard() == shard && p.GetQueues() > 0 {
				out.Topics = append(out.Topics, topicOf(t, int(p.GetQueues())))
			}
		}
	}
	for _, g := range d.GetGroups() {
		out.Groups = append(out.Groups, groupOf(g))
	}
	for _, id := range d.GetDeletedTopics() {
		out.DeletedTopics = append(out.DeletedTopics, record.TopicID(id))
	}
	for _, id := range d.GetDeletedGroups() {
		out.DeletedGroups = append(out.DeletedGroups, record.GroupID(id))
	}
	return out
}

func topicOf(t *controllerv1.Topic, queues int) topic.Definition {
	return topic.Definition{
		ID: record.TopicID(t.GetId()), Name: t.GetName(), Type: topic.Type(t.GetType()), Queues: queues,
		Flush: topic.Flush(t.GetFlush()), Version: t.GetVersion(), CreatedMS: t.GetCreatedMs(),
		Limits: limitsOf(t.GetLimits()),
		Layout: t.GetLayoutVersion(), Growing: t.GetGrowing().GetBeganVersion(),
	}
}

// limitsOf leaves out the limits that are for proxies.
func limitsOf(l *controllerv1.TopicLimits) topic.Limits {
	return topic.Limits{
		CheckAfterMS: l.GetCheckAfterMs(), CheckIntervalMS: l.GetCheckIntervalMs(), CheckLimit: l.GetCheckLimit(),
		DuplicatesMS: l.GetDuplicateWindowMs(), LiteExpiryMS: l.GetLiteExpiryMs(),
	}
}

// fromOf maps the controller's beginning of a group to the broker's.
var fromOf = map[controllerv1.StartFrom]group.From{
	controllerv1.StartFrom_START_FROM_LAST: group.FromLast,
	controllerv1.StartFrom_START_FROM_TIME: group.FromTime,
}

func groupOf(g *controllerv1.Group) group.Definition {
	delays := g.GetBackoffMs()
	if x := g.GetExponential(); x != nil {
		delays = []int64{x.GetInitialMs(), x.GetMaxMs()} // a broker needs to know only the longest one
	}
	return group.Definition{
		ID: record.GroupID(g.GetId()), Name: g.GetName(), Ordered: g.GetOrdered(), MaxAttempts: max(1, int(g.GetMaxAttempts())),
		From: fromOf[g.GetFrom()], FromMS: g.GetFromMs(), LiteTopic: g.GetLiteTopic(), BackoffMS: delays,
		Version: g.GetVersion(), CreatedMS: g.GetCreatedMs(),
		MaxInFlight: g.GetMaxInFlight(), MaxInFlightClient: g.GetMaxInFlightClient(),
	}
}
