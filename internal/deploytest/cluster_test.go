package deploytest

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/testbin"
	"github.com/perigee-mq/perigee/internal/testport"
	"github.com/perigee-mq/perigee/internal/testproc"
)

// service is one process as a file in deploy/ describes it.
type service struct {
	name string
	host string   // name of the machine or container that it runs on
	args []string // behind the name of the program
	env  []string // NAME=value
	stop time.Duration
}

// cluster is all of them on loopback.
type cluster struct {
	t     *testing.T
	addrs map[string]string // by host:port
	procs []*testproc.Process
	names []string
	all   []service
}

// endpoint is an address within a word of a command line or an environment.
var endpoint = regexp.MustCompile(`[a-z0-9.]+:[0-9]{4,5}\b`)

// local puts loopback addresses in place of those of a service's world. data is where its directory is.
func (c *cluster) local(s service, word, data string) string {
	word = strings.ReplaceAll(strings.ReplaceAll(word, "/data", data), "${STATE_DIRECTORY}", data)
	return endpoint.ReplaceAllStringFunc(word, func(at string) string {
		host, port, _ := net.SplitHostPort(at)
		if host == "0.0.0.0" {
			host = s.host
		}
		key := net.JoinHostPort(host, port)
		if c.addrs[key] == "" {
			addr, err := testport.Find()
			require.NoError(c.t, err)
			c.addrs[key] = addr
		}
		return c.addrs[key]
	})
}

// start starts services as their files say.
func start(t *testing.T, all []service) *cluster {
	bin, err := testbin.Path()
	require.NoError(t, err)
	dir := t.TempDir()
	c := &cluster{t: t, addrs: map[string]string{}, all: all}
	t.Cleanup(func() {
		for _, p := range c.procs {
			p.End()
		}
	})
	for _, s := range all {
		data := filepath.Join(dir, s.name)
		var args []string
		for _, a := range s.args {
			args = append(args, c.local(s, a, data))
		}
		if slices.Contains([]string{"dev", "broker"}, s.args[0]) { // files of 1 GiB are for machines that do nothing else
			args = append(args, "--segment-bytes", "4MiB")
		}
		p := testproc.New(s.name, filepath.Join(dir, s.name+".log"), []string{bin}, args)
		for _, e := range s.env {
			p.Env = append(p.Env, c.local(s, e, data))
		}
		require.NoError(t, p.Launch(), s.name)
		c.procs, c.names = append(c.procs, p), append(c.names, s.name)
	}
	for _, p := range c.procs {
		require.NoError(t, p.Serving())
	}
	return c
}

// perigee runs a command of the program.
func (c *cluster) perigee(args ...string) (string, error) {
	bin, err := testbin.Path()
	require.NoError(c.t, err)
	out, err := exec.Command(bin, args...).Output()
	return string(out), err
}

// whole checks that a cluster is what it is meant to be: three controllers, two groups of three replicas in sync, two proxies of
// which each takes and gives messages; and that every process ends in the time that its file gives it.
func (c *cluster) whole(controllers []string, proxies []string) {
	var at []string
	for _, a := range controllers {
		require.NotEmpty(c.t, c.addrs[a], "nobody listens on %s", a)
		at = append(at, c.addrs[a])
	}
	var status struct {
		Controllers []struct{ Error string } `json:"controllers"`
		Groups      []struct {
			InSync []int `json:"in_sync"`
			MinISR int   `json:"min_isr"`
		} `json:"broker_groups"`
		Brokers []struct{ Address, HTTP string } `json:"brokers"`
		Proxies []struct{ Address string }       `json:"proxies"`
	}
	wrong := ""
	for end := time.Now().Add(40 * time.Second); ; testproc.Await(nil, 100*time.Millisecond) {
		out, err := c.perigee("cluster", "status", "-o", "json", "--controller", strings.Join(at, ","))
		wrong = fmt.Sprint(err)
		if err == nil {
			require.NoError(c.t, json.Unmarshal([]byte(out), &status))
			wrong = ""
			if len(status.Controllers) != 3 || len(status.Groups) != 2 || len(status.Brokers) != 6 || len(status.Proxies) != 2 {
				wrong = out
			}
			for _, g := range status.Groups {
				if len(g.InSync) != 3 || g.MinISR != 2 {
					wrong = out
				}
			}
		}
		if wrong == "" {
			break
		}
		require.True(c.t, time.Now().Before(end), "not whole: %s", wrong)
	}
	for _, one := range status.Controllers {
		require.Empty(c.t, one.Error)
	}
	for i, a := range proxies {
		topic := fmt.Sprint("topic-", i)
		server := []string{"--server", c.addrs[a]}
		_, err := c.perigee(append([]string{"topic", "create", topic}, server...)...)
		require.NoError(c.t, err)
		_, err = c.perigee(append([]string{"group", "create", "readers"}, server...)...)
		require.NoError(c.t, err)
		_, err = c.perigee(append([]string{"send", topic, "hello"}, server...)...)
		require.NoError(c.t, err)
		out, err := c.perigee(append([]string{"receive", topic, "--group", "readers"}, server...)...)
		require.NoError(c.t, err)
		require.True(c.t, strings.HasSuffix(out, "\nhello\n"), out)
	}
	for i := range c.procs { // proxies are the last
		p, s := c.procs[len(c.procs)-1-i], c.all[len(c.procs)-1-i]
		require.NoError(c.t, p.Stop(s.stop))
	}
}
