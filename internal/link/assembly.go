package link

// assembly puts the frames of one message of the peer together. Credit bounds what all assemblies of
// a link hold.
type assembly struct {
	buf   []byte
	size  int
	begun bool
}

// begin starts a message of the given size.
func (a *assembly) begin(size int) {
	a.begun, a.size = true, size
	a.buf = make([]byte, 0, size)
}

// add appends the payload of a frame and tells whether the message is complete.
func (a *assembly) add(payload []byte, last bool) (bool, error) {
	n := len(a.buf) + len(payload)
	switch {
	case n > a.size:
		return false, broken("a message of more than the %d bytes it announced", a.size)
	case last && n < a.size:
		return false, broken("a message of %d bytes that announced %d", n, a.size)
	case !last && n == a.size:
		return false, broken("all %d bytes of a message without marking the last", n)
	}
	a.buf = append(a.buf, payload...)
	return last, nil
}
