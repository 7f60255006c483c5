package proxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// moved follows a change of the routes.
func (p *Proxy) moved() {
	p.masters.Look()
	p.isolation.Forget(p.shards())
}

// isolated tells the operator of a broker group that is left alone, or is taken back.
func (p *Proxy) isolated(shard brokerapi.ShardID, is bool, latency time.Duration) {
	name := ""
	if sh := p.routes.Load().Shard(shard); sh != nil {
		name = sh.Name
	}
	attrs := []slog.Attr{slog.String("shard", name), slog.Duration("latency", latency)}
	if is {
		p.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "broker group is much slower than others, or fails: sends that may choose go elsewhere, it is tried now and then; look at its disks, and at the network to it", attrs...)
		return
	}
	p.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "broker group takes sends again as fast as others: it is isolated no more", attrs...)
}
