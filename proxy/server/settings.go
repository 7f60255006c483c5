package server

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/route"
)

// What producers are told: Java and Node cannot start without an exponential policy.
const (
	sendAttempts     = 3
	sendBackoffFirst = 10 * time.Millisecond
	sendBackoffMax   = time.Second
	backoffFactor    = 2
)

// topicsKept bounds the topics that are remembered of one producer.
const topicsKept = 1024

// checkSettings checks settings and returns the consumer's group, nil for a producer.
func (s *Server) checkSettings(ctx context.Context, settings *rmqv2.Settings) (*route.Group, error) {
	switch settings.GetPubSub().(type) {
	case *rmqv2.Settings_Publishing:
		for _, t := range settings.GetPublishing().GetTopics() {
			if no := checkTopic([]byte(t.GetName())); no.given() {
				return nil, mqerr.New(mqerr.Invalid, "%s", no.text)
			}
		}
		return nil, nil
	case *rmqv2.Settings_Subscription:
		return s.checkSubscription(ctx, settings)
	}
	return nil, mqerr.New(mqerr.Invalid, "the settings have neither a publishing nor a subscription part")
}

func (s *Server) checkSubscription(ctx context.Context, settings *rmqv2.Settings) (*route.Group, error) {
	sub, lite := settings.GetSubscription(), false
	switch settings.GetClientType() {
	case rmqv2.ClientType_PUSH_CONSUMER, rmqv2.ClientType_SIMPLE_CONSUMER, rmqv2.ClientType_PULL_CONSUMER:
	case rmqv2.ClientType_LITE_PUSH_CONSUMER, rmqv2.ClientType_LITE_SIMPLE_CONSUMER:
		lite = true
	default:
		return nil, mqerr.New(mqerr.Invalid, "client type %s is not that of a consumer that this release serves", settings.GetClientType())
	}
	name := sub.GetGroup().GetName()
	if no := checkGroup([]byte(name)); no.given() {
		return nil, mqerr.New(mqerr.Invalid, "%s", no.text)
	}
	for _, e := range sub.GetSubscriptions() {
		f := e.GetExpression()
		if no := checkFilter(int32(f.GetType()), []byte(f.GetExpression())); no.given() {
			return nil, mqerr.New(mqerr.Invalid, "%s", no.text)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.BrokerTimeout)
	defer cancel()
	group, err := s.ensureGroup(ctx, name)
	if err != nil {
		return nil, err
	}
	return group, checkLite(group, lite, sub)
}

// checkLite keeps lite consumers and groups that are bound to a lite topic together.
func checkLite(group *route.Group, lite bool, sub *rmqv2.Subscription) error {
	switch {
	case lite && group.LiteTopic == "":
		return mqerr.New(mqerr.Invalid, "consumer group %s is not bound to a lite topic, as a lite consumer's must be", group.Name)
	case !lite && group.LiteTopic != "":
		return mqerr.New(mqerr.Invalid, "consumer group %s is bound to lite topic %s: only lite consumers may use it", group.Name, group.LiteTopic)
	case lite && !slices.ContainsFunc(sub.GetSubscriptions(), func(e *rmqv2.SubscriptionEntry) bool {
		return e.GetTopic().GetName() == group.LiteTopic
	}):
		return mqerr.New(mqerr.Invalid, "a lite consumer of group %s must subscribe to topic %s", group.Name, group.LiteTopic)
	}
	return nil
}

// remembered is what the proxy keeps of settings as the client sent them.
func remembered(settings *rmqv2.Settings) clients.Settings {
	kept := clients.Settings{
		Type:           clients.Type(settings.GetClientType()),
		Language:       int32(settings.GetUserAgent().GetLanguage()),
		Subscription:   subscriptionHash(settings),
		Group:          settings.GetSubscription().GetGroup().GetName(),
		RequestTimeout: settings.GetRequestTimeout().AsDuration(),
		PollTimeout:    settings.GetSubscription().GetLongPollingTimeout().AsDuration(),
	}
	if _, known := rmqv2.Language_name[kept.Language]; !known {
		kept.Language = 0
	}
	if settings.GetPublishing() != nil {
		kept.Type = clients.Producer
	}
	for _, t := range settings.GetPublishing().GetTopics() {
		if len(kept.Topics) == topicsKept {
			break
		}
		kept.Topics = append(kept.Topics, t.GetName())
	}
	return kept
}

// subscriptionHash tells subscriptions apart, in whatever order they are listed. Lite consumers of a group, and
// simple ones, which name topics and filters in each receive, may differ: 0.
func subscriptionHash(settings *rmqv2.Settings) uint64 {
	if settings.GetClientType() != rmqv2.ClientType_PUSH_CONSUMER {
		return 0
	}
	sum := uint64(0)
	for _, e := range settings.GetSubscription().GetSubscriptions() {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\x00%d\x00%s", e.GetTopic().GetName(), e.GetExpression().GetType(), e.GetExpression().GetExpression())
		sum += h.Sum64()
	}
	return max(1, sum)
}

// completeSettings overwrites what the server decides; everything else is echoed. Every field here is
// one without which some client does not start, send or receive.
func (s *Server) completeSettings(settings *rmqv2.Settings, group *route.Group, node bool) {
	settings.Metric = &rmqv2.Metric{}
	if pub := settings.GetPublishing(); pub != nil {
		pub.MaxBodySize = int32(s.o.Limits.BodyBytes)
		pub.ValidateMessageType = true
		settings.BackoffPolicy = exponential(sendAttempts, sendBackoffFirst, sendBackoffMax, backoffFactor)
		return
	}
	sub := settings.GetSubscription()
	sub.Fifo = new(group.Ordered)
	sub.ReceiveBatchSize = new(int32(s.o.Limits.ReceiveBatch))
	sub.LongPollingTimeout = durationpb.New(s.o.Limits.PollMax)
	sub.LiteSubscriptionQuota = new(int32(s.o.Limits.LiteQuota)) // to consumers of other kinds, too
	sub.MaxLiteTopicSize = new(int32(s.o.Limits.LiteTopicSize))
	settings.BackoffPolicy = groupBackoff(group, node)
}

// groupBackoff is the retry policy of a group. Node knows only exponential ones, and Python's push
// consumers only lists, whole seconds at that.
func groupBackoff(group *route.Group, node bool) *rmqv2.RetryPolicy {
	if node {
		if g := group.Growth; g.Multiplier > 0 {
			return exponential(group.MaxAttempts, wholeSeconds(g.Initial), wholeSeconds(g.Max), float32(g.Multiplier))
		}
		return exponential(group.MaxAttempts, wholeSeconds(group.Backoff[0]), wholeSeconds(group.Backoff[len(group.Backoff)-1]), backoffFactor)
	}
	next := make([]*durationpb.Duration, len(group.Backoff))
	for i, d := range group.Backoff {
		next[i] = durationpb.New(wholeSeconds(d))
	}
	return &rmqv2.RetryPolicy{
		MaxAttempts: group.MaxAttempts,
		Strategy:    &rmqv2.RetryPolicy_CustomizedBackoff{CustomizedBackoff: &rmqv2.CustomizedBackoff{Next: next}},
	}
}

func exponential(attempts int32, first, most time.Duration, factor float32) *rmqv2.RetryPolicy {
	return &rmqv2.RetryPolicy{
		MaxAttempts: attempts,
		Strategy: &rmqv2.RetryPolicy_ExponentialBackoff{ExponentialBackoff: &rmqv2.ExponentialBackoff{
			Initial: durationpb.New(first), Max: durationpb.New(most), Multiplier: factor,
		}},
	}
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// speaksNode recognises the Node.js client, which calls its language HTTP in the headers.
func speaksNode(c call.Info, settings *rmqv2.Settings) bool {
	if l := settings.GetUserAgent().GetLanguage(); l != rmqv2.Language_LANGUAGE_UNSPECIFIED {
		return l == rmqv2.Language_NODE_JS
	}
	l := c.Header(headerLanguage)
	return l == "HTTP" || l == "NODE_JS"
}
