package link

// frame handles what a server sends.
func (c *Client) frame(h head, payload []byte) error {
	switch h.kind {
	case kindReply:
		return c.reply(h, payload)
	case kindEvent:
		c.n.Events.Add(1)
		if c.event != nil {
			return c.event(payload)
		}
		return nil
	case kindGoaway:
		c.goaway()
		return nil
	}
	return broken("a frame of kind %d, which is for servers", h.kind)
}

// goaway fails what has not started and refuses what would come after it.
func (c *Client) goaway() {
	var refused []*Call
	c.mu.Lock()
	c.draining = true
	for _, call := range c.calls {
		if !call.started {
			c.abandon(call)
			refused = append(refused, call)
		}
	}
	c.work.Signal()
	c.mu.Unlock()
	for _, call := range refused {
		call.To.Fail(draining)
	}
}

// reply adds a frame to an answer and completes the call when it is the last one.
func (c *Client) reply(h head, payload []byte) error {
	c.mu.Lock()
	call := c.calls[h.id]
	whole, err := c.assemble(call, h, payload)
	if err != nil || !whole {
		c.mu.Unlock()
		return err
	}
	delete(c.calls, call.id)
	c.deadlines.remove(call)
	late := call.ended
	call.ended = true
	c.mu.Unlock()
	c.answer(call, h, late)
	return nil
}

func (c *Client) assemble(call *Call, h head, payload []byte) (whole bool, err error) {
	switch {
	case call == nil || !call.started:
		return false, broken("a reply to request %d, which is not open", h.id)
	case call.on != nil:
		return false, broken("a reply to request %d, which is not complete", h.id)
	case call.answer.begun == (h.flags&flagFirst != 0):
		return false, broken("a frame of the reply to request %d out of turn", h.id)
	}
	if h.flags&flagFirst != 0 {
		size := int(le32(payload, 0))
		if err := c.take(call.Class, size); err != nil {
			return false, err
		}
		c.gate(call.Class)
		call.answer.begin(size)
		payload = payload[replyHeadSize:]
	}
	return call.answer.add(payload, h.flags&flagLast != 0)
}

// gate holds new pops back while the answers to earlier ones fill the window: they could not be
// answered, only leased. The mutex is held.
func (c *Client) gate(class Class) {
	if class != Pop {
		return
	}
	stop := c.held[Pop] >= c.o.Window[Pop]
	if !stop && c.out.stop[Pop] {
		c.work.Signal()
	}
	c.out.stop[Pop] = stop
}

// answer tells the receiver, and gives the credit back unless it keeps the bytes.
func (c *Client) answer(call *Call, h head, late bool) {
	body, failed := call.answer.buf, h.flags&(flagFailed|flagRefused) != 0
	call.answer.buf = nil
	keep := false
	switch {
	case late:
		c.n.Late.Add(1)
		call.To.Late(body, failed)
	case h.flags&flagRefused != 0:
		call.To.Fail(draining)
	default:
		c.n.Replies.Add(1)
		keep = call.To.Answer(body, failed)
	}
	if !keep {
		c.Return(call.Class, len(body))
	}
}
