package main

import "github.com/perigee-mq/perigee/controller/state"

// peerSettings bound what other processes of the cluster may open here.
type peerSettings struct {
	MaxPeerConnections int `koanf:"max-peer-connections" help:"connections of other processes of the cluster that may be open at --addr; more are closed at once"`
}

func defaultPeers() peerSettings { return peerSettings{MaxPeerConnections: 4096} }

func (s peerSettings) check() error {
	if s.MaxPeerConnections < 1 {
		return usageError("--max-peer-connections %d: use 1 or more", s.MaxPeerConnections)
	}
	return nil
}

// definitionSettings bound what a cluster may define.
type definitionSettings struct {
	MaxTopics int `koanf:"max-topics" help:"topics that the cluster may have; more are not created but for those of dead letters, which count. The controller that leads goes by its own setting"`
	MaxGroups int `koanf:"max-groups" help:"consumer groups that the cluster may have; more are not created. The controller that leads goes by its own setting"`
}

func defaultDefinitions() definitionSettings {
	return definitionSettings{MaxTopics: state.TopicsMax, MaxGroups: state.GroupsMax}
}

func (s definitionSettings) check() error {
	if s.MaxTopics < 1 || s.MaxTopics > state.TopicsMax {
		return usageError("--max-topics %d: use 1 to %d", s.MaxTopics, state.TopicsMax)
	}
	if s.MaxGroups < 1 || s.MaxGroups > state.GroupsMax {
		return usageError("--max-groups %d: use 1 to %d", s.MaxGroups, state.GroupsMax)
	}
	return nil
}
