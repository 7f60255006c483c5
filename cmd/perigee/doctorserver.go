package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/doctor"
)

// lookAtServer asks a proxy what the doctor wants to know.
func (s *doctorSettings) lookAtServer(ctx context.Context) (*doctor.Server, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	defer c.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	out := &doctor.Server{Address: s.Server}
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", s.Server)
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	out.Reach = doctor.NotGRPC
	if out.HTTP = speaksHTTP(tcp); out.HTTP {
		return out, nil
	}
	if !greet(ctx, c, out) {
		return out, nil
	}
	out.TLS = certificateOf(ctx, s.Server)
	admin := adminv1.NewAdminServiceClient(c.conn)
	if version, err := admin.Version(ctx, &adminv1.VersionRequest{}); err == nil {
		out.Release, out.Cluster = version.GetRelease(), version.GetClusterId()
	} else if status.Code(err) == codes.Unimplemented {
		out.Reach, out.Error = doctor.NotPerigee, status.Convert(err).Message()
		return out, nil
	} else {
		out.Controller = status.Convert(err).Message()
	}
	if err := list(ctx, admin, out); err != nil {
		out.Unlisted = status.Convert(err).Message()
	}
	s.lookAtRoutes(ctx, c, out)
	return out, nil
}

// greet asks the health service, and tells whether it answered.
func greet(ctx context.Context, c *client, out *doctor.Server) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	switch code := status.Code(err); code {
	case codes.OK:
		serving := r.GetStatus() == healthv1.HealthCheckResponse_SERVING
		out.Reach, out.Serving = doctor.Reached, &serving
		return true
	case codes.Unavailable, codes.DeadlineExceeded:
		out.Error = status.Convert(err).Message()
	default:
		out.Reach, out.Error = doctor.NotPerigee, code.String()
	}
	return false
}

// speaksHTTP tells whether a port answers a request of HTTP/1, and closes the connection.
func speaksHTTP(conn net.Conn) bool {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	head := make([]byte, 7)
	n, _ := io.ReadFull(conn, head)
	return strings.HasPrefix(string(head[:n]), "HTTP/1.")
}

// selfMade is the organisation in the certificate that a proxy makes for itself.
const selfMade = "Perigee self-signed"

// certificateOf reads the certificate of a port, nil if it speaks no TLS. Nothing is trusted for it.
func certificateOf(ctx context.Context, address string) *doctor.TLS {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: host}} //nolint:gosec // the certificate is what is looked at
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	leaf := secure.ConnectionState().PeerCertificates[0]
	t := &doctor.TLS{SelfMade: slices.Contains(leaf.Subject.Organization, selfMade), Host: host, NotAfter: leaf.NotAfter}
	if err := leaf.VerifyHostname(host); err != nil {
		t.HostErr = err.Error()
	}
	return t
}

// list asks for topics, groups and dead letters with their figures. What there is no time for is said to be unknown.
func list(ctx context.Context, admin adminv1.AdminServiceClient, out *doctor.Server) error {
	topics, err := admin.ListTopics(ctx, &adminv1.ListTopicsRequest{})
	if err != nil {
		return err
	}
	groups, err := admin.ListGroups(ctx, &adminv1.ListGroupsRequest{})
	if err != nil {
		return err
	}
	letters, err := admin.ListDeadLetters(ctx, &adminv1.ListDeadLettersRequest{})
	if err != nil {
		return err
	}
	for _, l := range letters.GetTopics() {
		if l.GetGroup() != "" {
			out.DeadLetters = append(out.DeadLetters, doctor.DeadLetters{Topic: l.GetTopic(), Broker: l.GetBroker(), Left: l.GetLeft(), NewestMS: l.GetNewestMs()})
		}
	}
	for i, g := range groups.GetGroups() {
		r, err := admin.DescribeGroup(ctx, &adminv1.DescribeGroupRequest{Name: g.GetName()})
		if ctx.Err() != nil {
			out.Groups = append(out.Groups, doctor.Group{Name: g.GetName(), Unknown: []string{unasked(len(groups.GetGroups()) - i)}})
			break
		}
		out.Groups = append(out.Groups, groupOf(g.GetName(), r, err))
	}
	for i, t := range topics.GetTopics() {
		r, err := admin.DescribeTopic(ctx, &adminv1.DescribeTopicRequest{Name: t.GetName()})
		if ctx.Err() != nil {
			out.Unasked = len(topics.GetTopics()) - i
			break
		}
		if err == nil {
			out.Topics = append(out.Topics, doctor.Topic{Name: t.GetName(), Queues: len(r.GetQueues()), Unknown: r.GetUnknown()})
		} else if status.Code(err) != codes.NotFound { // deleted meanwhile
			out.Topics = append(out.Topics, doctor.Topic{Name: t.GetName(), Unknown: []string{status.Convert(err).Message()}})
		}
	}
	return nil
}

func unasked(n int) string {
	return fmt.Sprintf("%d were not asked for lack of time: raise --timeout", n)
}

func groupOf(name string, r *adminv1.DescribeGroupResponse, err error) doctor.Group {
	g := doctor.Group{Name: name, Unknown: r.GetUnknown()}
	if err != nil && status.Code(err) != codes.NotFound { // deleted meanwhile
		g.Unknown = append(g.Unknown, status.Convert(err).Message())
	}
	for _, t := range r.GetTopics() {
		g.Topics = append(g.Topics, doctor.Progress{
			Topic: t.GetTopic(), Ready: t.GetReady(), InFlight: t.GetInFlight(), OldestMS: t.GetOldestMs(), OverMax: t.GetOverMaxAttempts(),
		})
	}
	return g
}

// lookAtRoutes asks where a client is sent that names no address, and tries it.
func (s *doctorSettings) lookAtRoutes(ctx context.Context, c *client, out *doctor.Server) {
	var addresses []string
	for _, t := range out.Topics {
		if strings.HasPrefix(t.Name, "%") {
			continue
		}
		r, err := c.rpc.QueryRoute(c.header(ctx), &rmqv2.QueryRouteRequest{Topic: &rmqv2.Resource{Name: t.Name}})
		if err != nil || r.GetStatus().GetCode() != rmqv2.Code_OK {
			continue
		}
		for _, q := range r.GetMessageQueues() {
			for _, a := range q.GetBroker().GetEndpoints().GetAddresses() {
				addresses = append(addresses, net.JoinHostPort(a.GetHost(), strconv.Itoa(int(a.GetPort()))))
			}
		}
		break // every topic is sent to the same proxies
	}
	slices.Sort(addresses)
	for _, address := range slices.Compact(addresses) {
		e := doctor.Endpoint{Address: address}
		conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			e.Error = err.Error()
		} else {
			_ = conn.Close()
		}
		out.Advertised = append(out.Advertised, e)
	}
}
