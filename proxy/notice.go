package proxy

import (
	"context"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// noticeTime bounds what follows from one event of a broker.
const noticeTime = 30 * time.Second

// notice fetches what waits for this proxy at a broker.
func (p *Proxy) notice(shard brokerapi.ShardID, n brokerapi.Notice) {
	if n&brokerapi.NoticeChecks != 0 {
		p.checks.Notice(shard)
	}
	if n&brokerapi.NoticeLite != 0 {
		p.beside(func(ctx context.Context) { p.server.LiteGone(ctx, shard) })
	}
}

// repeat says to a broker that can be asked again what it has forgotten.
func (p *Proxy) repeat(shard brokerapi.ShardID) {
	p.beside(func(ctx context.Context) { p.server.ShardUp(ctx, shard) })
}

// beside runs do on a goroutine of its own: it waits for a broker, which the event of one must not. Run waits
// for it.
func (p *Proxy) beside(do func(ctx context.Context)) {
	p.besides.Go(func() {
		ctx, cancel := context.WithTimeout(p.life, noticeTime)
		defer cancel()
		do(ctx)
	})
}
