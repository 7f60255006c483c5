package model

import "github.com/perigee-mq/perigee/internal/brokerapi"

// Trimmed tells that a queue begins at an offset now: nobody gets what lies below for the first time. It
// returns how many messages a group loses that was handed none of them, and how many others it was not handed
// because they were deleted before: it may have passed those or not.
func (m *Model) Trimmed(t brokerapi.TopicID, q brokerapi.QueueID, first brokerapi.QueueOffset) (lost, before map[brokerapi.GroupID]int64) {
	lost, before = map[brokerapi.GroupID]int64{}, map[brokerapi.GroupID]int64{}
	top := m.topics[t]
	if top.First == nil {
		top.First = map[brokerapi.QueueID]brokerapi.QueueOffset{}
	}
	top.First[q] = max(top.First[q], first)
	for _, x := range m.messages {
		if x.Topic != t || x.State != Visible || x.Queue != q || x.Offset < 0 || x.Offset >= first || x.Trimmed {
			continue
		}
		x.Trimmed = true
		for id := range m.groups {
			switch {
			case m.sub(t, id)[x] != nil:
			case x.Hole:
				before[id]++
			default:
				lost[id]++
			}
		}
	}
	return lost, before
}

// Begin is the first offset of a queue.
func (m *Model) Begin(t brokerapi.TopicID, q brokerapi.QueueID) brokerapi.QueueOffset {
	return m.topics[t].First[q]
}

// isOver tells whether a group that has a lease of a message, or none, will not get it any more.
func isOver(x *Message, l *lease) bool {
	return l == nil && (x.Trimmed || x.Hole) || l != nil && l.done
}

// IsOver tells whether a group has done a message, or will not get it any more; true for a group that has done
// nothing on the topic.
func (m *Model) IsOver(x *Message, g brokerapi.GroupID) bool {
	sub := m.sub(x.Topic, g)
	l := sub[x]
	return len(sub) == 0 || l != nil && l.done
}

// mayBeLost tells whether the record of a message may be deleted: nobody needs it.
func (m *Model) mayBeLost(x *Message) bool {
	return x.Pos < m.Begins && x.State != Waiting && x.State != Half
}
