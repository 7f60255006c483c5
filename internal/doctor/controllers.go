package doctor

// controllersCheck looks at the controllers as a group: enough of them, and all there.
var controllersCheck = check{"controllers", "the controllers: how many vote, which are away or behind", controllers}

func controllers(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		votes := m.with("perigee_controller_members", "state", "votes")
		if leads, _ := m.value("perigee_controller_leads"); leads == 1 {
			if away, _ := m.value("perigee_controller_members_away"); away > 0 {
				f.fail("start the controllers that are away, or replace them (docs/cluster.md): with one more lost there may be no majority",
					"%.0f of %.0f controllers do not answer the leader %s", away, votes, at)
			}
			if learns := m.with("perigee_controller_members", "state", "learns"); learns > 0 {
				f.warn("run `perigee cluster members add` again for it, or remove it", "%.0f controllers have no vote yet, says %s", learns, at)
			}
			if n := int(votes); n%2 == 0 && n > 0 {
				f.warn("run 3 or 5 controllers: an even number bears no more losses than one less", "%d controllers vote, says %s", n, at)
			}
		}
		if known, ok := m.value("perigee_controller_caught_up"); ok && known == 0 {
			f.fail("see whether it reaches the other controllers (--raft-addr, and their --advertise)", "controller %s has not caught up since its start: it answers no proxy", at)
		}
	}, "perigee_controller_members")
}

// electionsCheck looks at the broker groups as the controllers' leader judges them.
var electionsCheck = check{"broker-groups", "broker groups without a master that may be elected, and those that have lost messages", elections}

func elections(p *Picture, f *Finding) {
	each(p, f, func(at string, m Metrics) {
		if n, ok := m.value("perigee_controller_stuck_groups"); ok && n > 0 {
			f.fail("start a replica that is in sync (perigee cluster status); if none of them can come back: perigee cluster elect --unclean",
				"%.0f broker groups need a master, and no replica that has every acknowledged message is heard from, says controller %s", n, at)
		}
		if n, ok := m.value("perigee_controller_data_losses"); ok && n > 0 {
			f.warn("find out which messages were sent shortly before (perigee cluster status shows the groups); the count stays", "%.0f times an operator had a master elected that might miss acknowledged messages", n)
		}
	}, "perigee_controller_data_losses")
}
