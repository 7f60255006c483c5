package engine

// respond passes on the reply, or the first of two errors: that of the turn and the operation's own.
func respond[R any](done func(*R, error), reply *R, err, own error) {
	if err == nil {
		err = own
	}
	if err != nil {
		done(nil, err)
		return
	}
	done(reply, nil)
}

// readAside runs f on a goroutine that may wait for the disk; few do so at a time. What is held of the
// inbox counts until f has answered; 0 is a request of the engine's own, which does not count.
func (w *writer) readAside(held int64, f func()) {
	if held > 0 {
		w.off.n--
		w.off.bytes -= held
	}
	e := w.e
	e.reads.Go(func() {
		e.cold <- struct{}{}
		defer func() { <-e.cold }()
		f()
		if held > 0 {
			e.inbox.free(1, held)
		}
	})
}
