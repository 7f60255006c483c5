package blackbox

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/testbin"
)

// trio is three controllers, one broker group and one proxy, each a process.
type trio struct {
	*cluster
	ids     []string
	addr    map[string]string // of brokers and proxies
	raft    map[string]string
	members string
	nodes   map[string]*process
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster of processes")
	}
	k := &trio{
		cluster: &cluster{t: t, dir: t.TempDir(), brokers: map[string]*process{}, brokerAddr: map[string]string{}},
		ids:     []string{"c1", "c2", "c3"}, addr: map[string]string{}, raft: map[string]string{}, nodes: map[string]*process{},
	}
	t.Cleanup(k.stop)
	var members, addrs []string
	for _, id := range k.ids {
		k.addr[id], k.raft[id] = freeAddr(t), freeAddr(t)
		members, addrs = append(members, id+"="+k.raft[id]), append(addrs, k.addr[id])
	}
	k.members, k.ctlAddr = strings.Join(members, ","), strings.Join(addrs, ",")
	for _, id := range k.ids {
		k.launch(id)
	}
	for _, id := range k.ids {
		k.await(id)
	}
	k.startBroker("a")
	k.proxyAddr[0] = freeAddr(t)
	k.startProxy(0)
	return k
}

// launch starts a controller that may not be ready before others are there.
func (k *trio) launch(id string) {
	k.t.Helper()
	bin, err := testbin.Path()
	if err != nil {
		k.t.Fatal(err)
	}
	p, err := launch("controller "+id, bin, "controller", "--id", id, "--data-dir", filepath.Join(k.dir, id), "--addr", k.addr[id], "--raft-addr", k.raft[id], "--initial-members", k.members)
	if err != nil {
		k.t.Fatal(err)
	}
	k.nodes[id] = p
	k.all = append(k.all, p)
}

func (k *trio) await(id string) {
	k.t.Helper()
	if _, err := k.nodes[id].await(20 * time.Second); err != nil {
		k.t.Fatal(err)
	}
}

// node asks a controller about itself; nil if it does not answer.
func (k *trio) node(ctx context.Context, id string) *controllerv1.NodeResponse {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+k.addr[id], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	r, err := controllerv1.NewClusterServiceClient(conn).Node(ctx, &controllerv1.NodeRequest{})
	if err != nil {
		return nil
	}
	return r
}

// leader waits until a controller that runs says that it leads.
func (k *trio) leader(not string) (leader string) {
	k.t.Helper()
	until(k.t, 20*time.Second, func(ctx context.Context) bool {
		for _, id := range k.ids {
			if r := k.node(ctx, id); id != not && r.GetRole() == "Leader" && r.GetCaughtUp() {
				leader = id
				return true
			}
		}
		return false
	})
	return leader
}

// putTopic asks for a topic through the proxy.
func putTopic(ctx context.Context, c *client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: name, Queues: 2}})
	return err
}

// TestLeadingControllerKilled: while leaders are killed one after another under load no send fails, and a
// topic whose creation was answered is there.
//
//fault:kill the leading one of three controllers is killed under load, again and again => no send fails because of it, creations wait for the next leader, and every one that was answered is there
func TestLeadingControllerKilled(t *testing.T) {
	t.Parallel()
	k := newTrio(t)
	c := k.client(0)
	p := newPlace(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	var mu sync.Mutex
	var made []string
	var slowest time.Duration
	sent := 0
	load.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			a := p.send(t.Context(), c, p.message("under load"))
			a.is(t, "OK")
			mu.Lock()
			slowest = max(slowest, a.took)
			sent++
			mu.Unlock()
		}
	})
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("made-%d", i)
			if err := putTopic(t.Context(), c, name); err != nil {
				t.Errorf("topic %s: %v", name, err)
				return
			}
			mu.Lock()
			made = append(made, name)
			mu.Unlock()
		}
	})
	for round := range 3 {
		id := k.leader("")
		k.kill(k.nodes[id])
		began := time.Now()
		if err := putTopic(t.Context(), c, fmt.Sprint("after-", round)); err != nil {
			t.Errorf("after the death of %s: %v", id, err)
		}
		t.Logf("%s was killed: a topic was made %v later", id, time.Since(began).Round(time.Millisecond))
		next := k.leader(id)
		t.Logf("%s leads %v later", next, time.Since(began).Round(time.Millisecond))
		k.launch(id)
		k.await(id)
	}
	cancel()
	load.Wait()
	t.Logf("%d sends, the slowest took %v; %d topics", sent, slowest, len(made))
	if slowest > 3*time.Second {
		t.Errorf("a send took %v", slowest)
	}
	list, err := c.admin.ListTopics(t.Context(), &adminv1.ListTopicsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, x := range list.GetTopics() {
		have[x.GetName()] = true
	}
	for _, name := range made {
		if !have[name] {
			t.Errorf("topic %s is lost", name)
		}
		c.do(t.Context(), "QueryRoute", request("QueryRoute", name, "")).is(t, "OK")
	}
}

// TestMajorityOfControllersLost: with one controller of three messages flow, changes are refused honestly, and
// they are taken again when a second one is back.
//
//fault:kill two of three controllers are killed => messages flow, a new proxy learns the routes from the one that is left; topics are refused until a second controller is back
func TestMajorityOfControllersLost(t *testing.T) {
	t.Parallel()
	k := newTrio(t)
	c := k.client(0)
	p := newPlace(t, c)
	left := k.leader("")
	var gone []string
	for _, id := range k.ids {
		if id != left {
			gone = append(gone, id)
			k.kill(k.nodes[id])
		}
	}
	flows := func(c *client) {
		t.Helper()
		for range 20 {
			p.send(t.Context(), c, p.message("a message")).is(t, "OK")
			a := p.receive(t.Context(), c, nil)
			a.is(t, "OK")
			p.ack(t.Context(), c, a.messages).is(t, "OK")
		}
	}
	flows(c)
	until(t, 10*time.Second, func(ctx context.Context) bool { return k.node(ctx, left).GetRole() != "Leader" })
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	_, err := c.admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "never", Queues: 2}})
	cancel()
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no controller leads") {
		t.Errorf("without a majority: %v", err)
	}
	// The one that is left tells a new proxy what it knows.
	k.proxyAddr[1] = freeAddr(t)
	k.startProxy(1)
	flows(k.client(1))
	k.launch(gone[0])
	k.await(gone[0])
	until(t, 15*time.Second, func(ctx context.Context) bool { return putTopic(ctx, c, "again") == nil })
	c.do(t.Context(), "QueryRoute", request("QueryRoute", "never", "")).is(t, "TOPIC_NOT_FOUND")
	flows(c)
}
