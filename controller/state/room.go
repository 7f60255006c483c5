package state

import "github.com/perigee-mq/perigee/internal/mqerr"

// room refuses a new topic or group if there are most of them; most is 1 to possible, or 0.
func room(what, name string, have, most, possible int) error {
	if most <= 0 || most > possible {
		most = possible
	}
	if have < most {
		return nil
	}
	return mqerr.New(mqerr.Exhausted, "%[1]s %[2]q can't be created: there are %[3]d %[1]ss, the most that are allowed (--max-%[1]ss of the controllers, at most %[4]d)", what, name, have, possible)
}

func (s *State) topicRoom(name string, most int) error {
	return room("topic", name, len(s.topics), most, TopicsMax)
}
