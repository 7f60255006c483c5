package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/controller/raft/memlog"
	"github.com/perigee-mq/perigee/internal/nodes"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/proxy"
)

// born is when every bubble of testing/synctest begins.
var born = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// boot is the boot-time clock of all machines.
func boot() time.Duration { return time.Since(born) }

// simClock is the clock of a broker (broker/clock.Clock).
type simClock struct{}

func (simClock) Wall() int64  { return time.Now().UnixMilli() }
func (simClock) Lease() int64 { return born.UnixMilli() + boot().Milliseconds() }

const (
	controllerPort, raftPort = ":9876", ":9877"
	brokerPort, proxyPort    = ":10911", ":8081"
)

// addController adds the i-th controller of n, counted from 1.
func (s *sim) addController(i, n int) {
	p := s.process(fmt.Sprint("c", i), fmt.Sprintf("10.0.1.%d", i))
	var members []raft.Member
	for k := 1; k <= n; k++ {
		members = append(members, raft.Member{ID: fmt.Sprint("c", k), Addr: fmt.Sprintf("10.0.1.%d%s", k, raftPort)})
	}
	log := memlog.New()
	p.alone = true // its directory is a real one, with a lock
	p.left = func(bool) { log = log.Fork() }
	p.begin = func(p *process) (func(context.Context) error, error) {
		ln, err := p.stack.Listen(p.ip + controllerPort)
		if err != nil {
			return nil, err
		}
		mine := log
		c, err := controller.New(controller.Options{
			ID: p.name, DataDir: filepath.Join(s.dir, p.name), Listener: ln, AdvertiseAddr: p.ip + controllerPort, RaftAddr: p.ip + raftPort, Members: members,
			Dial: p.stack.Dial, RaftListen: p.stack.Listen, RaftStore: func() (raft.LogStore, error) { return mine, nil },
			Boot: boot, FastFailover: s.plan.fast, Release: "sim", Log: p.log(),
		})
		if err != nil {
			return nil, err
		}
		return c.Run, nil
	}
	s.controllers = append(s.controllers, p)
	s.ctlAddrs = append(s.ctlAddrs, p.ip+controllerPort)
}

// connect is a process's connection to the controllers.
func (p *process) connect() (*nodes.Conn, error) {
	return nodes.New(p.s.ctlAddrs, grpc.WithContextDialer(p.stack.Dial))
}

// disk is the disk of a replica, with the replica that uses it.
type disk struct {
	id     uint32
	fs     *memfs.FS
	slow   *slowFS
	broker *broker.Broker // of the last start
}

// wipe gives the replica an empty disk.
func (d *disk) wipe() {
	d.fs = memfs.New()
	d.slow = &slowFS{FS: d.fs}
}

// addBroker adds a replica of a broker group.
func (s *sim) addBroker(group string, id, at int) {
	p := s.process(fmt.Sprintf("%s%d", group, id), fmt.Sprintf("10.0.2.%d", at))
	d := &disk{id: uint32(id)}
	d.wipe()
	chance := rand.New(rand.NewPCG(s.seed, uint64(100+at)))
	p.left = func(power bool) {
		old := d.fs
		if power {
			d.fs = old.Crash(chance, chance.Float64())
		} else {
			d.fs = old.Fork()
		}
		old.CutPower(1) // whatever it does from here on is of no use
		d.slow = &slowFS{FS: d.fs}
	}
	p.begin = func(p *process) (func(context.Context) error, error) {
		ln, err := p.stack.Listen(p.ip + brokerPort)
		if err != nil {
			return nil, err
		}
		conn, err := p.connect()
		if err != nil {
			return nil, err
		}
		d.fs.Restart()
		r := p.next
		b := broker.New(broker.Options{
			DataDir: "/data", Group: group, ID: uint32(id), FS: d.slow, Listener: ln, Advertise: p.ip + brokerPort, Controller: s.reg.listen(p.name, conn),
			SegmentBytes: segmentBytes, DrainTimeout: 3 * time.Second, Release: "sim", Log: p.log(),
			Engine:      engine.Options{Clock: simClock{}, CheckpointInterval: 7 * time.Second},
			Replication: broker.Replication{DialOptions: []grpc.DialOption{grpc.WithContextDialer(p.stack.Dial)}},
			Boot:        boot, Step: func(st broker.Step) { s.reached(p, r, st) },
		})
		d.broker = b
		return func(ctx context.Context) error {
			defer conn.Close()
			return b.Run(ctx)
		}, nil
	}
	s.brokers = append(s.brokers, p)
	s.disks[p] = d
	s.names[p.ip+brokerPort] = group
}

// segmentBytes is so small that the log goes on in many files.
const segmentBytes = 1 << 20

// addProxy adds a proxy.
func (s *sim) addProxy(i int) {
	p := s.process(fmt.Sprint("p", i), fmt.Sprintf("10.0.3.%d", i))
	p.begin = func(p *process) (func(context.Context) error, error) {
		ln, err := p.stack.Listen(p.ip + proxyPort)
		if err != nil {
			return nil, err
		}
		conn, err := p.connect()
		if err != nil {
			return nil, err
		}
		x, err := proxy.New(proxy.Options{
			Listener: ln, Controller: conn, Dial: p.stack.Dial, Advertise: p.ip + proxyPort, DrainTimeout: 3 * time.Second, Release: "sim", Log: p.log(),
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			defer conn.Close()
			return x.Run(ctx)
		}, nil
	}
	s.proxies = append(s.proxies, p)
}
