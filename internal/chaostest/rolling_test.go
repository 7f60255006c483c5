package chaostest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/load"
)

// rolling restarts every process of a cluster in order, one after another, while official clients send and receive.
type rolling struct {
	place   *place
	forward *forwarder
	clients []*official
	t       *testing.T
}

// TestRolling restarts every process of a cluster in order under the load of official clients: no error reaches the application beyond
// what the client's own retries hide, nothing is lost, nothing comes twice within a lease or after its ack.
//
//fault:kill every controller, broker and proxy of a replicated cluster is restarted in order under the load of official clients (`make rolling`) => no call of an application fails, nothing is lost, nothing comes twice
func TestRolling(t *testing.T) {
	if len(clientsFlag) == 0 {
		t.Skip("make rolling builds the programs of the official clients")
	}
	dir := directory(t, "perigee-rolling")
	p, err := newPlace(whole, 200, dir) // no network of TestChaos
	if err != nil {
		t.Fatal(err)
	}
	r := &rolling{place: p, t: t}
	began := time.Now()
	if err := r.run(dir); err != nil {
		t.Errorf("%v\n  data, logs and what the clients saw: %s", err, dir)
		return
	}
	t.Logf("all in %v", time.Since(began).Round(time.Second))
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func (r *rolling) run(dir string) (err error) {
	defer func() { err = errors.Join(err, r.place.end()) }()
	if err := r.place.start(); err != nil {
		return err
	}
	var http []string
	for _, n := range r.place.proxyNames() {
		http = append(http, r.place.http[n])
	}
	if r.forward, err = newForwarder(r.place.proxy, http); err != nil {
		return err
	}
	defer r.forward.end()
	if err := r.define(slices.Sorted(maps.Keys(clientsFlag))); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(clientsFlag)) {
		c, err := launch(name, clientsFlag[name], dir, r.forward.addr(), "1")
		if err != nil {
			return err
		}
		defer c.end()
		r.clients = append(r.clients, c)
	}
	if err := r.every(60*time.Second, func(c *official) error { return c.said("ready") }); err != nil {
		return err
	}
	if err := r.every(20*time.Second, func(c *official) error { return c.said("sent") }); err != nil {
		return err
	}
	for _, name := range r.place.names {
		if err := r.restart(name); err != nil {
			return err
		}
	}
	return r.judge()
}

// every waits until something holds of each client.
func (r *rolling) every(d time.Duration, is func(*official) error) error {
	for _, c := range r.clients {
		if err := eventually(d, func() error { return is(c) }); err != nil {
			return err
		}
	}
	return nil
}

// define makes topics and groups of the clients' programs.
func (r *rolling) define(clients []string) error {
	conn, err := load.Service{}.Connect(r.forward.addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	admin, yes := adminv1.NewAdminServiceClient(conn), true
	for _, c := range clients {
		name := "it-" + c + "-steady"
		err := eventually(20*time.Second, func() error {
			ctx, cancel := call(context.Background(), 5*time.Second)
			defer cancel()
			_, err1 := admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: name, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL, Queues: 8}})
			_, err2 := admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: name + "fifo", Type: controllerv1.TopicType_TOPIC_TYPE_FIFO, Queues: 8}})
			_, err3 := admin.PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: name + "-1"}})
			_, err4 := admin.PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: name + "push-1"}})
			_, err6 := admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: "it-" + c + "-send", Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL, Queues: 8}})
			_, err5 := admin.PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: name + "fifo-1", Ordered: &yes}})
			return errors.Join(err1, err2, err3, err4, err5, err6)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restart ends a process in order, starts it again, and waits until the cluster is at rest.
func (r *rolling) restart(name string) error {
	role := ""
	if g := r.place.groupOf[name]; g != "" && r.place.masterOf(g) == name {
		role = ", a master"
	}
	began := time.Now()
	if err := r.place.proc(name).Stop(stopTime); err != nil {
		return err
	}
	stopped := time.Since(began)
	if err := r.place.launch(name); err != nil {
		return err
	}
	if err := r.place.rest(); err != nil {
		return err
	}
	if err := eventually(10*time.Second, func() error {
		if ready := r.forward.readies(); slices.Contains(ready, false) {
			return fmt.Errorf("proxies that are ready: %v", ready)
		}
		return nil
	}); err != nil {
		return err
	}
	over := time.Now()
	if err := r.every(20*time.Second, func(c *official) error {
		if !c.since(over) {
			return fmt.Errorf("the %s client sends nothing", c.name)
		}
		return nil
	}); err != nil {
		return err
	}
	var gaps []string
	for _, c := range r.clients {
		gaps = append(gaps, fmt.Sprintf("%s %.2fs", c.name, c.gap(began, time.Now()).Seconds()))
	}
	r.t.Logf("%s%s: stopped in %.1fs, at rest after %.1fs; no send of %s", name, role, stopped.Seconds(), over.Sub(began).Seconds(), strings.Join(gaps, ", "))
	return nil
}

// judge lets the clients receive what is left, and looks at what they saw.
func (r *rolling) judge() error {
	for _, c := range r.clients {
		if err := c.drain(); err != nil {
			return err
		}
	}
	all := r.every(60*time.Second, func(c *official) error {
		if err := c.said("produced"); err != nil {
			return err
		}
		return newApplication(c.seen()).missing()
	})
	pause(appLease / 2) // nothing comes again meanwhile
	for _, c := range r.clients {
		a := newApplication(c.seen())
		r.t.Logf("%s: %d messages sent, %d answers to receives lost by the client, %d faults", c.name, len(a.sent), a.lost, len(a.bad))
		for _, b := range a.bad {
			r.t.Errorf("%s: %s", c.name, b)
		}
	}
	for _, line := range r.place.complaints("part=raft") { // its word for a leader that has handed over
		r.t.Errorf("a process complains: %s", line)
	}
	if all == nil && r.t.Failed() {
		all = errors.New("an application saw faults")
	}
	return all
}
