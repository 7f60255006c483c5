package blackbox

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/testbin"
	"github.com/perigee-mq/perigee/internal/testport"
)

// cluster is one controller, the broker groups a and b, and two proxies, each a process.
type cluster struct {
	t             *testing.T
	dir           string
	ctlAddr, raft string
	controller    *process
	brokers       map[string]*process
	brokerAddr    map[string]string
	proxies       [2]dev
	proxyAddr     [2]string
	all           []*process // in the order of their starts
}

// freeAddr is a loopback address on which nobody listened a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	return testport.Addr(t)
}

// newCluster starts a cluster. At the end all its processes must end well.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster of processes")
	}
	k := &cluster{t: t, dir: t.TempDir(), ctlAddr: freeAddr(t), raft: freeAddr(t), brokers: map[string]*process{}, brokerAddr: map[string]string{}}
	t.Cleanup(k.stop)
	k.startController()
	k.startBroker("a")
	k.startBroker("b")
	for i := range k.proxies {
		k.proxyAddr[i] = freeAddr(t)
		k.startProxy(i)
	}
	return k
}

// stop ends all processes that are still there, the last one first. It runs after the places of the test
// are settled, whenever their processes were started.
func (k *cluster) stop() {
	for _, p := range slices.Backward(k.all) {
		select {
		case <-p.ended: // by the test
		default:
			ends(k.t, p)
		}
	}
}

// run starts a process that must end well when the test does, unless it was killed.
func (k *cluster) run(name string, args ...string) (*process, map[string]string) {
	k.t.Helper()
	bin, err := testbin.Path()
	if err != nil {
		k.t.Fatal(err)
	}
	p, addrs, err := start(name, bin, args...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.all = append(k.all, p)
	return p, addrs
}

func (k *cluster) startController() {
	k.t.Helper()
	k.controller, _ = k.run("controller", "controller", "--data-dir", filepath.Join(k.dir, "controller"), "--addr", k.ctlAddr, "--raft-addr", k.raft)
}

// startBroker starts the broker of a group on its directory, on a new port.
func (k *cluster) startBroker(group string) {
	k.t.Helper()
	p, addrs := k.run("broker "+group, "broker", "--data-dir", filepath.Join(k.dir, group), "--addr", "127.0.0.1:0",
		"--group", group, "--id", "1", "--controller", k.ctlAddr, "--segment-bytes", "16MiB")
	k.brokers[group], k.brokerAddr[group] = p, addrs["addr"]
}

func (k *cluster) startProxy(i int) {
	k.t.Helper()
	p, addrs := k.run(fmt.Sprint("proxy ", i), "proxy", "--grpc-addr", k.proxyAddr[i], "--http-addr", "127.0.0.1:0", "--controller", k.ctlAddr, "--auto-create=false", "--drain-delay", "0s", "--failover-wait", "1s")
	k.proxies[i] = dev{p: p, grpc: addrs["grpc"], http: addrs["http"]}
}

// client returns a client of proxy i.
func (k *cluster) client(i int) *client {
	k.t.Helper()
	return connect(k.t, k.proxies[i].grpc)
}

// kill ends a process with SIGKILL.
func (k *cluster) kill(p *process) {
	k.t.Helper()
	if err := p.kill(); err != nil {
		k.t.Fatal(err)
	}
}

// brokersOf lists the broker groups of a topic's route, once per queue, with the queue's id.
func brokersOf(t *testing.T, c *client, topic string) (queues []string) {
	t.Helper()
	a := c.do(t.Context(), "QueryRoute", request("QueryRoute", topic, ""))
	a.is(t, "OK")
	if len(a.replies) == 0 {
		return nil
	}
	for _, q := range a.replies[0].(*rmqv2.QueryRouteResponse).GetMessageQueues() {
		queues = append(queues, fmt.Sprintf("%s/%d", q.GetBroker().GetName(), q.GetId()))
	}
	slices.Sort(queues)
	return queues
}

// adminBack waits until a proxy has found a controller that was started again.
func (k *cluster) adminBack(c *client) {
	k.t.Helper()
	until(k.t, 10*time.Second, func(ctx context.Context) bool {
		_, err := c.admin.Version(ctx, &adminv1.VersionRequest{})
		return err == nil
	})
}
