package history

// leases checks what groups are given: nothing after its ack, nothing while somebody has it, and that a
// lease that holds is known to be one.
func (c *checker) leases() {
	for _, t := range c.tracks {
		for i, d := range t.deliveries {
			for _, before := range t.deliveries {
				c.afterEnd(t, before, d)
			}
			for _, before := range t.deliveries[:i] {
				if until := c.until(before, d.item.At); d.item.At+c.rules.Slack < until {
					c.violate("nothing comes twice inside a lease", "%s came to %s at %d ms, %s had it until %d ms at least",
						d.item.ID, t.group, d.item.At/1e6, before.op.Client, until/1e6)
				}
			}
			c.known(t, d)
		}
	}
}

// afterEnd checks a delivery against the acks and forwards of another lease of the same message.
func (c *checker) afterEnd(t *track, before, d *delivery) {
	for _, u := range before.ends {
		if u.item.Outcome != OK || c.wasReset(t.group, t.place.Topic, u.op.Began, d.item.At) {
			continue
		}
		if d.op.Began >= u.op.Ended || d.item.Attempt > before.item.Attempt && d.item.At > u.op.Began && !c.doneSince(t, before, d, u) {
			c.violate("nothing comes after its "+string(u.op.Kind), "%s at %s came to %s at %d ms with attempt %d; attempt %d was done at %d ms",
				d.item.ID, t.place, t.group, d.item.At/1e6, d.item.Attempt, before.item.Attempt, u.op.Ended/1e6)
		}
	}
}

// doneSince tells whether an ack or forward that was answered behind the end of its lease may have found the message done, by
// whoever got it since: that is OK, too. Proxies make such calls again when a master is lost, so they may take long.
func (c *checker) doneSince(t *track, before, d *delivery, u use) bool {
	if u.op.Ended <= c.until(before, u.op.Ended) {
		return false
	}
	for _, later := range t.deliveries {
		if later.item.Attempt < d.item.Attempt {
			continue
		}
		for _, e := range later.ends {
			if e.item.Outcome != Fail && e.op.Began < u.op.Ended {
				return true
			}
		}
	}
	return false
}

// until is when the lease of a delivery ends at the earliest, as far as others may know at a time.
func (c *checker) until(d *delivery, now Time) Time {
	if d.op.Outcome != OK || c.wasReset(d.op.Group, d.item.Place.Topic, d.op.Began, now) {
		return 0 // an answer that was not read to its end may have been given back
	}
	for _, g := range c.all[Goodbye] {
		if g.Client == d.op.Client && g.Outcome != Fail && g.Began < now && g.over() > d.op.Began {
			return 0
		}
	}
	until := d.op.Began + d.op.For
	for _, u := range d.changes {
		switch {
		case u.op.Began >= now:
		case u.item.Outcome == OK:
			until = u.op.Began + u.op.For
		case u.item.Outcome == Unknown:
			until = min(until, u.op.Began+u.op.For)
		}
	}
	return until
}

// known checks that the handle of a lease that holds was never refused.
func (c *checker) known(t *track, d *delivery) {
	check := func(u use) {
		if !u.item.Invalid || c.wasReset(t.group, t.place.Topic, d.op.Began, u.op.Ended) || c.until(d, u.op.Began) <= u.op.Ended+c.rules.Slack {
			return
		}
		for _, e := range d.ends {
			if e != u && e.item.Outcome != Fail && e.op.Began < u.op.Ended {
				return
			}
		}
		for _, o := range d.changes { // one under way may end it
			if o != u && o.item.Outcome == Unknown {
				return
			}
		}
		c.violate("a lease that holds is known", "%s of %s, %s to %s at %d ms was answered that the handle is not valid, %d ms before the end of its lease",
			u.op.Kind, d.item.ID, t.place, t.group, u.op.Ended/1e6, (c.until(d, u.op.Began)-u.op.Ended)/1e6)
	}
	for _, u := range d.ends {
		check(u)
	}
	for _, u := range d.changes {
		check(u)
	}
}

// done tells whether what a group was given at a place may be done by a time: acknowledged or forwarded.
func (t *track) done(by Time) bool {
	for _, d := range t.deliveries {
		for _, u := range d.ends {
			if u.item.Outcome != Fail && u.op.Began < by {
				return true
			}
		}
	}
	return false
}

// acked tells whether an ack was answered OK while its lease held. Behind that the message may have become a dead letter, and
// be done for that reason.
func (c *checker) acked(t *track) bool {
	for _, d := range t.deliveries {
		for _, u := range d.ends {
			if u.op.Kind == Ack && u.item.Outcome == OK && u.op.Ended <= c.until(d, u.op.Ended) {
				return true
			}
		}
	}
	return false
}

// surely tells whether one of the group's calls with a handle of the place was answered OK.
func (t *track) surely(kind Kind) bool {
	for _, d := range t.deliveries {
		for _, u := range d.ends {
			if u.op.Kind == kind && u.item.Outcome == OK {
				return true
			}
		}
	}
	return false
}
