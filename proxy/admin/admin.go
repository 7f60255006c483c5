// Package admin is the administrative service that every proxy serves: it hands changes on to the
// controller and asks the brokers for exact figures. It holds no state.
package admin

import (
	"context"
	"fmt"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// Brokers finds the broker that leads a shard.
type Brokers interface {
	Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error)
}

// Options configures a Server.
type Options struct {
	Controller controllerv1.ControllerServiceClient
	Routes     *route.Table
	Brokers    Brokers
	Release    string
}

// Server implements perigee.admin.v1.AdminService.
type Server struct {
	adminv1.UnimplementedAdminServiceServer
	o Options
}

// New returns a server.
func New(o Options) *Server { return &Server{o: o} }

// Version tells which server this is.
func (s *Server) Version(ctx context.Context, _ *adminv1.VersionRequest) (*adminv1.VersionResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	st, err := s.o.Controller.Status(ctx, &controllerv1.StatusRequest{})
	if err != nil {
		return nil, explain(err)
	}
	return &adminv1.VersionResponse{Release: s.o.Release, ClusterId: st.GetClusterId()}, nil
}

// PutTopic creates or changes a topic, and returns when this proxy's routes show it.
func (s *Server) PutTopic(ctx context.Context, req *adminv1.PutTopicRequest) (*adminv1.PutTopicResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	resp, err := s.o.Controller.PutTopic(ctx, req.GetTopic())
	if err != nil {
		return nil, explain(err)
	}
	if err := s.until(ctx, func(t *route.Snapshot) bool { return t.TopicByID(brokerapi.TopicID(resp.GetTopic().GetId())) != nil }); err != nil {
		return nil, err
	}
	return &adminv1.PutTopicResponse{Topic: resp.GetTopic(), Created: resp.GetCreated(), Changed: resp.GetChanged()}, nil
}

// PutGroup creates or changes a group, and returns when this proxy's routes show it.
func (s *Server) PutGroup(ctx context.Context, req *adminv1.PutGroupRequest) (*adminv1.PutGroupResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	resp, err := s.o.Controller.PutGroup(ctx, req.GetGroup())
	if err != nil {
		return nil, explain(err)
	}
	if err := s.until(ctx, func(t *route.Snapshot) bool { return t.GroupByID(brokerapi.GroupID(resp.GetGroup().GetId())) != nil }); err != nil {
		return nil, err
	}
	return &adminv1.PutGroupResponse{Group: resp.GetGroup(), Created: resp.GetCreated(), Changed: resp.GetChanged()}, nil
}

// DeleteTopic deletes a topic, and returns when this proxy's routes no longer show it.
func (s *Server) DeleteTopic(ctx context.Context, req *adminv1.DeleteTopicRequest) (*adminv1.DeleteTopicResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	old := s.o.Routes.Load().Topic([]byte(req.GetName()))
	if _, err := s.o.Controller.DeleteTopic(ctx, &controllerv1.DeleteTopicRequest{Name: req.GetName()}); err != nil {
		return nil, explain(err)
	}
	if old != nil {
		if err := s.until(ctx, func(t *route.Snapshot) bool { return t.TopicByID(old.ID) == nil }); err != nil {
			return nil, err
		}
	}
	return &adminv1.DeleteTopicResponse{}, nil
}

// DeleteGroup deletes a group, and returns when this proxy's routes no longer show it.
func (s *Server) DeleteGroup(ctx context.Context, req *adminv1.DeleteGroupRequest) (*adminv1.DeleteGroupResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	old := s.o.Routes.Load().Group([]byte(req.GetName()))
	if _, err := s.o.Controller.DeleteGroup(ctx, &controllerv1.DeleteGroupRequest{Name: req.GetName()}); err != nil {
		return nil, explain(err)
	}
	if old != nil {
		if err := s.until(ctx, func(t *route.Snapshot) bool { return t.GroupByID(old.ID) == nil }); err != nil {
			return nil, err
		}
	}
	return &adminv1.DeleteGroupResponse{}, nil
}

// ListTopics lists topics by name.
func (s *Server) ListTopics(ctx context.Context, _ *adminv1.ListTopicsRequest) (*adminv1.ListTopicsResponse, error) {
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	return &adminv1.ListTopicsResponse{Topics: d.GetTopics()}, nil
}

// ListGroups lists groups by name.
func (s *Server) ListGroups(ctx context.Context, _ *adminv1.ListGroupsRequest) (*adminv1.ListGroupsResponse, error) {
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	return &adminv1.ListGroupsResponse{Groups: d.GetGroups()}, nil
}

// until waits for the routes of this proxy.
func (s *Server) until(ctx context.Context, ok func(*route.Snapshot) bool) error {
	for {
		t := s.o.Routes.Load()
		if ok(t) {
			return nil
		}
		select {
		case <-t.Changed():
		case <-ctx.Done():
			return rpc.ToStatus(mqerr.New(mqerr.Timeout, "done, but this proxy has not heard of it yet: it follows shortly"))
		}
	}
}

// shardName is how people know a shard.
func (s *Server) shardName(t *route.Snapshot, id brokerapi.ShardID) string {
	if sh := t.Shard(id); sh != nil {
		return sh.Name
	}
	return fmt.Sprintf("shard %d", id)
}
