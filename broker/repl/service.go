package repl

import (
	"sync"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Service is the replication service of a broker's port. Its streams go to the Leader of the moment; without one
// followers are told who leads, as far as is known.
type Service struct {
	replicationv1.UnimplementedReplicationServiceServer

	mu     sync.Mutex // guards what follows
	leader *Leader
	epoch  record.Epoch
	hint   string
}

// Lead gives new streams to a Leader from now on.
func (s *Service) Lead(l *Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader, s.epoch, s.hint = l, l.Epoch(), ""
}

// Follow says that this replica does not lead, the highest epoch that it has seen, and the address of who does; empty if
// that is not known. Streams that are there end with their Leader.
func (s *Service) Follow(epoch record.Epoch, master string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader, s.epoch, s.hint = nil, epoch, master
}

// Replicate serves one follower.
func (s *Service) Replicate(stream serverStream) error {
	s.mu.Lock()
	l, epoch, hint := s.leader, s.epoch, s.hint
	s.mu.Unlock()
	if l != nil {
		return l.Serve(stream)
	}
	err := mqerr.New(mqerr.NotLeader, "this replica does not lead; the highest epoch that it knows is %d", epoch)
	bye := farewell{reason: replicationv1.CloseReason_CLOSE_REASON_NOT_MASTER, epoch: epoch, hint: hint, text: err.Error()}
	if e := stream.Send(bye.response()); e != nil {
		return e
	}
	return err
}
