package repl

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

const benchBytes = 256 << 20

// benchLog is a log on the disk of the machine.
func benchLog(b *testing.B, segment int64) *commitlog.Log {
	log, err := commitlog.Open(commitlog.Options{Dir: filepath.Join(b.TempDir(), "log"), SegmentBytes: segment})
	require.NoError(b, err)
	_, err = log.Recover(0, func(record.Record) error { return nil })
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, log.Close()) })
	return log
}

type noViews struct{}

func (noViews) Apply(record.Pos) error { return nil }
func (noViews) Applied() record.Pos    { return 0 }

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCatchUp copies 256 MiB of records of 1 KiB to a new follower over the loopback, until all of it is durable
// there, and copies as many bytes through a bare socket into a file with one fdatasync at the end: ratio is the
// speed of the first in the speed of the second.
func BenchmarkCatchUp(b *testing.B) {
	const segment = 64 << 20
	log := benchLog(b, segment)
	batch := log.NewBatch()
	put := func(kind record.Type, size, n int) {
		batch.Reset()
		for range n {
			_, body := batch.Begin(record.Header{Type: kind, Epoch: 1, Time: 1}, size)
			clear(body)
			batch.Seal()
		}
		require.NoError(b, log.Write(batch))
	}
	index, err := readIndex(log)
	require.NoError(b, err)
	for log.Written() < benchBytes {
		put(record.TypeMsg, 1024, 64)
	}
	require.NoError(b, log.Sync())
	self := Self{ClusterID: "c", Shard: 1, Member: quorum.Member{Replica: 1, Inc: 1}}
	leader, err := NewLeader(LeaderOptions{
		Self: self, CommitLog: log, Index: index, View: quorum.View{Epoch: 1, Version: 1, Master: self.Member, Set: []quorum.Member{self.Member}, MinISR: 1},
		Propose: func(context.Context, quorum.Proposal) (quorum.Outcome, quorum.View) {
			return quorum.Unknown, quorum.View{}
		},
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	led := make(chan error, 1)
	go func() { led <- leader.Run(ctx) }()
	service := &Service{}
	service.Lead(leader)
	server := grpc.NewServer(append(rpc.ServerOptions(slog.New(slog.DiscardHandler)), grpc.ForceServerCodecV2(rpc.NewCodec()), grpc.WriteBufferSize(socketBytes), grpc.ReadBufferSize(socketBytes))...)
	replicationv1.RegisterReplicationServiceServer(server, service)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	var ours, bare, work, bareWork time.Duration
	for range b.N {
		to := benchLog(b, segment)
		x, err := readIndex(to)
		require.NoError(b, err)
		f, err := NewFollower(FollowerOptions{
			Self: Self{ClusterID: "c", Shard: 1, Member: quorum.Member{Replica: 2, Inc: 1}}, CommitLog: to, Index: x, Views: noViews{},
			Promise: func(record.Epoch) error { return nil },
		})
		require.NoError(b, err)
		fctx, stop := context.WithCancel(b.Context())
		ran := make(chan error, 1)
		go func() { ran <- f.Run(fctx) }()
		began, used := time.Now(), cpu()
		require.NoError(b, f.Follow(1, self.Member, l.Addr().String()))
		for end := log.Written(); to.Durable() < end; {
			time.Sleep(time.Millisecond) // a look, not a wait for anything
		}
		ours, work = ours+time.Since(began), work+cpu()-used
		stop()
		require.NoError(b, <-ran)

		began, used = time.Now(), cpu()
		bareCopy(b, int64(log.Written()))
		bare, bareWork = bare+time.Since(began), bareWork+cpu()-used
	}
	cancel()
	require.NoError(b, <-led)
	server.Stop()
	require.NoError(b, <-served)
	all := float64(b.N) * float64(log.Written())
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
	b.ReportMetric(all/ours.Seconds()/1e6, "MB/s")
	b.ReportMetric(work.Seconds()*1e9/all, "cpu-ns/B")
	b.ReportMetric(bareWork.Seconds()*1e9/all, "bare-cpu-ns/B")
	b.ReportMetric(0, "ns/op")
}

// bareCopy sends bytes over the loopback into a file that is as long from the start, as a segment is.
func bareCopy(b *testing.B, n int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	sent := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			buf := make([]byte, chunkBytes)
			for left := n; left > 0 && err == nil; left -= int64(len(buf)) {
				_, err = c.Write(buf[:min(int64(len(buf)), left)])
			}
			_ = c.Close()
		}
		sent <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	file, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	require.NoError(b, err)
	buf := make([]byte, chunkBytes)
	for {
		k, err := c.Read(buf)
		if k > 0 {
			_, werr := file.Write(buf[:k])
			require.NoError(b, werr)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(b, err)
	}
	require.NoError(b, syscall.Fsync(int(file.Fd())))
	require.NoError(b, <-sent)
	require.NoError(b, file.Close())
	require.NoError(b, c.Close())
	require.NoError(b, l.Close())
}
