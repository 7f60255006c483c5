package state

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// snapshotFormat is the first thing in a snapshot.
const snapshotFormat = "perigee controller state"

// lineMax is the longest line of a snapshot: a topic on every shard has the most to say.
const lineMax = 1 << 20

// header is the first line of a snapshot.
type header struct {
	Format      string  `json:"format"`
	V           int     `json:"v"`
	Release     string  `json:"release"`
	Cluster     string  `json:"cluster"`
	Version     Version `json:"version"`
	Definitions Version `json:"definitions"`
	NextTopic   TopicID `json:"next_topic"`
	NextGroup   GroupID `json:"next_group"`
	NextShard   ShardID `json:"next_shard"`
	Keys        Keys    `json:"keys"`
	Gone        []UUID  `json:"gone,omitempty"` // directories of removed controllers
	Generation  uint16  `json:"generation,omitempty"`
	Lines       int     `json:"lines"` // that follow
}

// line is one of the others; exactly one field is set. Shards come first, then topics, groups and
// controllers, each by id, then deleted shards by name.
type line struct {
	Shard *Shard `json:"shard,omitempty"`
	Topic *Topic `json:"topic,omitempty"`
	Group *Group `json:"group,omitempty"`

	Controller *Controller `json:"controller,omitempty"`
	Ended      *Ended      `json:"ended,omitempty"`
}

// WriteSnapshot writes the state: JSON, one object a line. Equal states give equal bytes.
func (s *State) WriteSnapshot(w io.Writer, release string) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	err := e.Encode(header{
		Format: snapshotFormat, V: FormatVersion, Release: release, Cluster: s.cluster, Version: s.version, Definitions: s.definitions,
		NextTopic: s.nextTopic, NextGroup: s.nextGroup, NextShard: s.nextShard, Keys: s.keys, Gone: s.gone, Generation: s.generation,
		Lines: len(s.topics) + len(s.groups) + len(s.shards) + len(s.controllers) + len(s.ended),
	})
	put := func(l line) {
		if err == nil {
			err = e.Encode(l)
		}
	}
	for _, h := range s.Shards() {
		put(line{Shard: h})
	}
	for _, t := range s.Topics() {
		put(line{Topic: t})
	}
	for _, g := range s.Groups() {
		put(line{Group: g})
	}
	for _, c := range s.Controllers() {
		put(line{Controller: &c})
	}
	for _, e := range sorted(s.ended) {
		put(line{Ended: &e})
	}
	if err != nil {
		return err
	}
	return b.Flush()
}

// ReadSnapshot reads what WriteSnapshot wrote. Unknown versions and fields are Unsupported, anything
// else that does not fit is Corrupt.
func ReadSnapshot(r io.Reader) (*State, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4096), lineMax)
	var h header
	if !in.Scan() {
		return nil, mqerr.New(mqerr.Corrupt, "a snapshot of the controller's state is empty or too long (%v)", in.Err())
	}
	if err := json.Unmarshal(in.Bytes(), &h); err != nil || h.Format != snapshotFormat {
		return nil, mqerr.New(mqerr.Corrupt, "not a snapshot of the controller's state (%v)", err)
	}
	if h.V != FormatVersion {
		return nil, newer("the snapshot", h.V, h.Release, "format")
	}
	if err := strict(in.Bytes(), &header{}); err != nil {
		return nil, newer("the snapshot", h.V, h.Release, err.Error())
	}
	s := New()
	s.cluster, s.version, s.definitions, s.keys, s.gone = h.Cluster, h.Version, h.Definitions, h.Keys, h.Gone
	s.nextTopic, s.nextGroup, s.nextShard, s.generation = h.NextTopic, h.NextGroup, h.NextShard, h.Generation
	n := 0
	for ; in.Scan(); n++ {
		var l line
		if err := strict(in.Bytes(), &l); err != nil {
			return nil, newer("the snapshot", h.V, h.Release, err.Error())
		}
		if !s.take(l) {
			return nil, mqerr.New(mqerr.Corrupt, "line %d of the snapshot says nothing, or something twice", n+2)
		}
	}
	if in.Err() != nil || n != h.Lines {
		return nil, mqerr.New(mqerr.Corrupt, "the snapshot has %d of %d lines (%v)", n, h.Lines, in.Err())
	}
	if err := s.Check(); err != nil {
		return nil, mqerr.New(mqerr.Corrupt, "the snapshot: %w", err)
	}
	return s, nil
}

// take adds a line to a state that is being read, and reports whether it is new.
func (s *State) take(l line) bool {
	switch {
	case l.Ended != nil:
		_, there := s.ended[l.Ended.Name]
		s.ended[l.Ended.Name] = *l.Ended
		return !there && l == line{Ended: l.Ended}
	case l.Controller != nil:
		_, there := s.controllers[l.Controller.ID]
		s.controllers[l.Controller.ID] = *l.Controller
		return !there && l.Shard == nil && l.Topic == nil && l.Group == nil
	case l.Shard != nil && l.Topic == nil && l.Group == nil:
		return add(s.shards, s.shardNames, l.Shard.ID, l.Shard.Name, l.Shard)
	case l.Topic != nil && l.Group == nil && l.Shard == nil:
		return add(s.topics, s.topicNames, l.Topic.ID, l.Topic.Name, l.Topic)
	case l.Group != nil && l.Shard == nil:
		return add(s.groups, s.groupNames, l.Group.ID, l.Group.Name, l.Group)
	}
	return false
}

func add[K ~uint32, V any](byID map[K]V, byName map[string]K, id K, name string, v V) bool {
	_, there := byID[id]
	_, named := byName[name]
	byID[id], byName[name] = v, id
	return !there && !named
}
