package server

import (
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Limits are the bounds on requests. Zero fields mean the default, which is the reference server's.
type Limits struct {
	BodyBytes      int           // one body as sent; default 4 MiB
	BatchBytes     int           // bodies of one request together; default 4 MiB
	Properties     int           // user properties of one message; default 128
	PropertyBytes  int           // keys and values of user properties, tag and keys together; default 16 KiB
	SystemBytes    int           // system properties of one message as sent; default 32 KiB
	GroupNameBytes int           // message group; default 63
	DelayMax       time.Duration // from now to a delivery time, unless the topic has a limit; default 40 days
	RecoveryMax    time.Duration // until the first check of a transaction; default 1 h
	BrokerTimeout  time.Duration // of a call to a broker when the client set no deadline; default 5 s
	HomeWait       time.Duration // for the broker that may have a message already, before another one gets it; at most a third of the client's time; default 1 s
	InvisibleMin   time.Duration // of a receive; default 10 s
	InvisibleMax   time.Duration // default 12 h
	PollMin        time.Duration // default 5 s
	PollMax        time.Duration // default 20 s
	ReceiveBatch   int           // messages of one receive or pull; default 32, at most 1024
	ReceiveBytes   int           // of one receive or pull, but one message always comes; default 4 MiB
	LiteQuota      int           // lite topics that one client subscribes to; default 2000
	UnsentBytes    int64         // messages that wait for slow readers, all together; default 256 MiB
	LiteTopicSize  int           // characters of the name of a lite topic; default 64, at most 255

	// Pressed tells that memory is nearly used up: new work is refused. Default: never.
	Pressed func() bool
	// PressedRefused is called for each request that is refused because of that. Default: nothing happens.
	PressedRefused func()
}

// pressed refuses new work while memory is nearly used up.
func (s *Server) pressed() error {
	if !s.o.Limits.Pressed() {
		return nil
	}
	s.o.Limits.PressedRefused()
	return mqerr.New(mqerr.Exhausted, "the memory of the proxy is nearly used up: retry after a pause")
}

// receivesPressed are the receives that wait even then: some must come back, so that what is leased ends.
const receivesPressed = 256

func (l Limits) withDefaults() Limits {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	defD := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	def(&l.BodyBytes, 4<<20)
	def(&l.BatchBytes, 4<<20)
	def(&l.Properties, 128)
	def(&l.PropertyBytes, 16<<10)
	def(&l.SystemBytes, 32<<10)
	def(&l.GroupNameBytes, 63)
	def(&l.ReceiveBatch, 32)
	def(&l.ReceiveBytes, 4<<20)
	if l.UnsentBytes == 0 {
		l.UnsentBytes = 256 << 20
	}
	if l.Pressed == nil {
		l.Pressed = func() bool { return false }
	}
	if l.PressedRefused == nil {
		l.PressedRefused = func() {}
	}
	def(&l.LiteQuota, 2000)
	def(&l.LiteTopicSize, 64)
	l.LiteTopicSize = min(l.LiteTopicSize, 255)
	defD(&l.DelayMax, 40*24*time.Hour)
	defD(&l.RecoveryMax, time.Hour)
	defD(&l.BrokerTimeout, 5*time.Second)
	defD(&l.HomeWait, time.Second)
	defD(&l.InvisibleMin, 10*time.Second)
	defD(&l.InvisibleMax, 12*time.Hour)
	defD(&l.PollMin, 5*time.Second)
	defD(&l.PollMax, 20*time.Second)
	return l
}

// homeTries is how often a broker that may have a message is asked again within HomeWait.
const homeTries = 10

func (l *Limits) homePause() time.Duration { return l.HomeWait / homeTries }

// patience is how often that is for a client that has so much time.
func (l *Limits) patience(left time.Duration) int {
	return int(min(l.HomeWait, left/3) / max(1, l.homePause()))
}

func (o Options) withDefaults() Options {
	o.Limits = o.Limits.withDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
