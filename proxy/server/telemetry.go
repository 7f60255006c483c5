package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
)

// Telemetry takes a client's settings, answers each with what is in force, and ends when the client
// does. Other commands of a client are answers to questions that this server does not ask: they are
// passed over. The response headers go out at once, since Rust waits for them.
func (s *Server) Telemetry(c call.Duplex) error {
	if err := c.SendHeaders(); err != nil {
		return err
	}
	client, no := clientID(c)
	if no.given() {
		return sendCommand(c, &rmqv2.TelemetryCommand{Status: &rmqv2.Status{Code: no.code, Message: no.text}})
	}
	defer s.o.Clients.Leave(client, c)
	for {
		msg, err := c.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		var cmd rmqv2.TelemetryCommand
		if err := proto.Unmarshal(msg, &cmd); err != nil {
			return &call.Failure{Code: call.InvalidArgument, Text: "the telemetry command is not valid protobuf"}
		}
		s.o.Clients.Heard(client, s.o.Now())
		if settings := cmd.GetSettings(); settings != nil {
			if err := s.settle(c, client, settings); err != nil {
				return err
			}
		}
	}
}

// settle answers settings. Refused ones end the stream, and those before them stay in force.
func (s *Server) settle(c call.Duplex, client string, settings *rmqv2.Settings) error {
	group, err := s.checkSettings(c.Context(), settings)
	if err != nil {
		return s.refuseSettings(c, err)
	}
	s.o.Clients.Put(client, remembered(settings), c, s.o.Now())
	s.completeSettings(settings, group, speaksNode(c, settings))
	return sendCommand(c, &rmqv2.TelemetryCommand{
		Status:  &rmqv2.Status{Code: rmqv2.Code_OK, Message: okText},
		Command: &rmqv2.TelemetryCommand_Settings{Settings: settings},
	})
}

// refuseSettings tells the client's mistakes from ours.
func (s *Server) refuseSettings(c call.Duplex, err error) error {
	switch mqerr.KindOf(err) {
	case mqerr.Invalid, mqerr.GroupNotFound, mqerr.TopicNotFound, mqerr.Denied:
		return &call.Failure{Code: call.InvalidArgument, Text: err.Error()}
	case mqerr.Cancelled:
		return context.Canceled
	case mqerr.Exhausted, mqerr.DiskFull:
		no := s.outcome(RPCTelemetry, err)
		no.hint(c)
		return &call.Failure{Code: call.ResourceExhausted, Text: no.text}
	}
	return &call.Failure{Code: call.Internal, Text: s.outcome(RPCTelemetry, err).text}
}

func sendCommand(c call.Duplex, cmd *rmqv2.TelemetryCommand) error {
	msg, err := proto.Marshal(cmd)
	if err != nil {
		return err
	}
	return c.Send(msg)
}

// Goodbye is the command that tells a client to connect anew: this proxy is about to stop.
func Goodbye() []byte {
	msg, err := proto.Marshal(&rmqv2.TelemetryCommand{
		Status:  &rmqv2.Status{Code: rmqv2.Code_OK, Message: okText},
		Command: &rmqv2.TelemetryCommand_ReconnectEndpointsCommand{ReconnectEndpointsCommand: &rmqv2.ReconnectEndpointsCommand{Nonce: "1"}},
	})
	if err != nil {
		return nil // it is always the same: a test sees this
	}
	return msg
}
