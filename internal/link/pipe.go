package link

import (
	"bytes"
	"io"
	"sync"
)

// Pipe returns the two ends of a stream of packets in memory, for tests. It holds one packet in each
// direction; then Send waits.
func Pipe() (Transport, Transport) {
	there, back := make(chan []byte, 1), make(chan []byte, 1)
	p := &pipe{closed: make(chan struct{})}
	return &pipeEnd{pipe: p, in: back, out: there}, &pipeEnd{pipe: p, in: there, out: back}
}

type pipe struct {
	once   sync.Once
	closed chan struct{}
}

type pipeEnd struct {
	*pipe
	in, out chan []byte
}

func (p *pipeEnd) Send(packet []byte) error {
	own := bytes.Clone(packet)
	Recycle(packet)
	select {
	case <-p.closed:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.out <- own:
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	}
}

func (p *pipeEnd) Recv() ([]byte, error) {
	select {
	case packet := <-p.in:
		return packet, nil
	default:
	}
	select {
	case packet := <-p.in:
		return packet, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *pipeEnd) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}
