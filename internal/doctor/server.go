package doctor

import (
	"net/netip"
	"strings"
	"time"
)

// What is judged late.
const (
	certificateSoon = 30 * 24 * time.Hour
	idleGroup       = 5 * time.Minute
	freshLetter     = time.Hour
)

var serverChecks = []check{
	{"server-reachable", "a connection to --server", serverReachable},
	{"server-port", "what answers at --server", serverPort},
	{"server-ready", "grpc.health.v1 of the client port", serverReady},
	{"tls", "the certificate of the client port: its names and its end", tlsCertificate},
	{"advertised-address", "the addresses that routes tell clients", advertised},
	{"controller", "whether the server reaches a controller that leads", controllerThere},
	{"groups-without-consumers", "groups with ready messages, the oldest of them older than five minutes, and none in flight", idleGroups},
	{"retries", "deliveries past the most attempts of a group", retries},
	{"dead-letters", "dead letters that nobody has moved on", deadLetters},
	{"topic-queues", "topics without queues, or with queues on brokers that are away", topicQueues},
}

// reached tells whether a check has a server to look at.
func reached(p *Picture, f *Finding) bool {
	if p.Server.Reach != Reached {
		f.unknown("", "the server was not reached")
		return false
	}
	return true
}

func listed(p *Picture, f *Finding) bool {
	if !reached(p, f) {
		return false
	}
	if p.Server.Unlisted != "" {
		f.unknown("mend what server-ready and controller say, then ask again", "the server could not list them: %s", p.Server.Unlisted)
		return false
	}
	return true
}

func serverReachable(p *Picture, f *Finding) {
	if s := p.Server; s.Reach == Refused {
		f.fail("start the proxy, or name its --grpc-addr with --server; look at firewalls between here and there", "nothing answers at %s: %s", s.Address, s.Error)
	}
}

func serverPort(p *Picture, f *Finding) {
	s := p.Server
	switch {
	case s.Reach == Refused:
		f.unknown("", "the server was not reached")
	case s.HTTP:
		f.fail("use the proxy's --grpc-addr for clients (8081 by default); 8082 is for /metrics and /readyz", "%s is an HTTP port, not the one for clients", s.Address)
	case s.Reach == NotGRPC:
		f.fail("use the proxy's --grpc-addr for clients, 8081 by default", "what listens at %s speaks no gRPC: %s", s.Address, s.Error)
	case s.Reach == NotPerigee:
		f.fail("use the proxy's --grpc-addr: this may be the port of a broker, a controller or another program", "%s speaks gRPC, but is no proxy of Perigee: %s", s.Address, s.Error)
	}
}

func serverReady(p *Picture, f *Finding) {
	switch s := p.Server; {
	case !reached(p, f):
	case s.Serving == nil:
		f.unknown("", "the health service did not answer")
	case !*s.Serving:
		f.fail("look at /readyz of its HTTP port: it says what the proxy waits for", "%s does not want calls now: it is starting, stopping or has no routes", s.Address)
	}
}

func tlsCertificate(p *Picture, f *Finding) {
	if !reached(p, f) {
		return
	}
	t := p.Server.TLS
	switch {
	case t == nil:
		f.unknown("", "no TLS connection could be made")
		return
	case t.SelfMade: // official clients do not check by default
		return
	}
	if left := t.NotAfter.Sub(p.Now); left <= 0 {
		f.fail("put a new certificate into --tls-cert and --tls-key: they are read again within seconds", "the certificate ended on %s", t.NotAfter.Format(time.DateOnly))
	} else if left < certificateSoon {
		f.warn("put a new certificate into --tls-cert and --tls-key: they are read again within seconds", "the certificate ends on %s", t.NotAfter.Format(time.DateOnly))
	}
	if t.HostErr != "" {
		f.fail("use a certificate with that name, or let clients use one of its names", "the certificate is not for %s: %s", t.Host, t.HostErr)
	}
}

func advertised(p *Picture, f *Finding) {
	s := p.Server
	if !reached(p, f) {
		return
	}
	if len(s.Advertised) == 0 {
		f.unknown("create a topic, then ask again", "there is no route to look at")
		return
	}
	for _, e := range s.Advertised {
		switch {
		case e.Error != "":
			f.fail("set --advertise of the proxy to an address that clients reach", "clients are sent to %s, which cannot be reached from here: %s", e.Address, e.Error)
		case isLoopback(e.Address) && !isLoopback(s.Address):
			f.fail("set --advertise of the proxy to an address that clients reach", "clients are sent to %s, which is their own machine", e.Address)
		}
	}
}

// isLoopback tells whether an address means the machine of whoever uses it.
func isLoopback(address string) bool {
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		host = strings.Trim(address[:i], "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

func controllerThere(p *Picture, f *Finding) {
	if reached(p, f) && p.Server.Controller != "" {
		f.fail("start the controllers; until then brokers and proxies go on with what they know, and topics and groups cannot be changed", "the server has no controller: %s", p.Server.Controller)
	}
}

func idleGroups(p *Picture, f *Finding) {
	if !listed(p, f) {
		return
	}
	for _, g := range p.Server.Groups {
		for _, t := range g.Topics {
			if age := p.Now.Sub(time.UnixMilli(t.OldestMS)); t.Ready > 0 && t.InFlight == 0 && t.OldestMS > 0 && age > idleGroup {
				f.warn("start its consumers, or delete the group if nobody needs it", "group %s has %d ready messages of topic %s, the oldest %s old, and nobody receives", g.Name, t.Ready, t.Topic, age.Round(time.Second))
			}
		}
		for _, u := range g.Unknown {
			f.unknown("", "group %s: %s", g.Name, u)
		}
	}
}

func retries(p *Picture, f *Finding) {
	if !listed(p, f) {
		return
	}
	for _, g := range p.Server.Groups {
		for _, t := range g.Topics {
			if t.OverMax > 0 {
				f.warn("look at the log of the broker: the dead-letter topic of the group cannot be made or written", "group %s got messages of topic %s %d times after its last attempt", g.Name, t.Topic, t.OverMax)
			}
		}
	}
}

func deadLetters(p *Picture, f *Finding) {
	if !listed(p, f) {
		return
	}
	for _, d := range p.Server.DeadLetters {
		if d.Left == 0 {
			continue
		}
		const do = "see `perigee dlq show`; mend the consumer, then move them back with `perigee dlq redrive`"
		if age := p.Now.Sub(time.UnixMilli(d.NewestMS)); d.NewestMS > 0 && age < freshLetter {
			f.warn(do, "%s on %s has %d dead letters, the newest %s old: consumers fail now", d.Topic, d.Broker, d.Left, age.Round(time.Second))
		} else {
			f.warn(do, "%s on %s has %d dead letters", d.Topic, d.Broker, d.Left)
		}
	}
}

func topicQueues(p *Picture, f *Finding) {
	if !listed(p, f) {
		return
	}
	if n := p.Server.Unasked; n > 0 {
		f.unknown("raise --timeout", "%d topics were not asked for lack of time", n)
	}
	var none []string
	for _, t := range p.Server.Topics {
		if len(t.Unknown) > 0 {
			f.fail("start the brokers that are away: messages in their queues wait there", "topic %s: %s", t.Name, some(t.Unknown))
		} else if t.Queues == 0 {
			none = append(none, t.Name)
		}
	}
	if len(none) > 0 {
		f.fail("grow the topics with `perigee topic update --queues`, or delete them", "topics without queues: %s", some(none))
	}
}
