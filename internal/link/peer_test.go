package link

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func frame(k kind, flags uint8, id uint32, payload ...byte) []byte {
	return append(appendHead(nil, head{kind: k, flags: flags, size: len(payload), id: id}), payload...)
}

func windows(n uint32) []byte {
	var p []byte
	for range Classes {
		p = binary.LittleEndian.AppendUint32(p, n)
	}
	return frame(kindWindow, 0, 0, p...)
}

func request(class Class, size uint32, body ...byte) []byte {
	p := []byte{1, byte(class), 0, 0, 0, 0}
	return append(binary.LittleEndian.AppendUint32(p, size), body...)
}

func join(frames ...[]byte) []byte {
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	return all
}

// A peer that breaks the protocol ends the link with an error that says how.
//
//fault:network a proxy breaks the protocol between proxy and broker => the link ends with an error that says how
func TestBadClient(t *testing.T) {
	const whole = flagFirst | flagLast
	for name, test := range map[string]struct {
		packet []byte
		text   string
	}{
		"half a head":         {[]byte{1, 2, 3}, "within the head"},
		"truncated":           {windows(1)[:10], "only 2 left"},
		"too large":           {append(appendHead(nil, head{kind: kindEvent, size: payloadMax + 1}), make([]byte, 70_000)...), "at most"},
		"unknown kind":        {frame(77, 0, 0), "newer release"},
		"kind 0":              {frame(0, 0, 0), "unknown kind"},
		"no windows":          {frame(kindPing, 0, 0), "first frame"},
		"windows twice":       {join(windows(1), windows(1)), "first frame"},
		"windows too short":   {frame(kindWindow, 0, 0, 1, 2), "2 bytes, not"},
		"ping with payload":   {join(windows(1), frame(kindPing, 0, 0, 1)), "1 bytes, not 0"},
		"flags of a ping":     {join(windows(1), frame(kindPing, 1, 0)), "flags"},
		"unknown flags":       {join(windows(1), frame(kindRequest, 0x80, 0)), "flags"},
		"credit for nothing":  {join(windows(1), frame(kindCredit, 0, 9, 1, 0, 0, 0)), "class 9"},
		"reply to a server":   {join(windows(1), frame(kindReply, whole, 1, 0, 0, 0, 0)), "for clients"},
		"short request":       {join(windows(1), frame(kindRequest, whole, 1, 1, 2)), "2 bytes, not 10"},
		"bad class":           {join(windows(1), frame(kindRequest, whole, 1, request(7, 0)...)), "class 7"},
		"oversize":            {join(windows(1), frame(kindRequest, flagFirst, 1, request(Send, MessageMax+1)...)), "at most"},
		"more than announced": {join(windows(1), frame(kindRequest, flagFirst, 1, request(Send, 1, 1, 2)...)), "more than"},
		"less than announced": {join(windows(1), frame(kindRequest, whole, 1, request(Send, 5, 1)...)), "announced 5"},
		"end not marked":      {join(windows(1), frame(kindRequest, flagFirst, 1, request(Send, 1, 1)...)), "marking the last"},
		"middle first":        {join(windows(1), frame(kindRequest, 0, 1, 5)), "out of turn"},
		"same id":             {join(windows(1), frame(kindRequest, flagFirst, 1, request(Send, 5, 1)...), frame(kindRequest, flagFirst, 1, request(Send, 5, 1)...)), "two requests"},
		"beyond its credit": {join(windows(1), frame(kindRequest, flagFirst, 1, request(Send, 32<<20, 1)...),
			frame(kindRequest, flagFirst, 2, request(Send, 5, 1)...)), "beyond its credit"},
		"after the last": {join(windows(1), frame(kindGoaway, 0, 0), frame(kindRequest, whole, 1, request(Send, 0)...)), "after the last"},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := Pipe()
			s := NewServer(far, &handler{}, Options{})
			require.NoError(t, near.Send(test.packet))
			s.Wait()
			require.True(t, mqerr.Is(s.Err(), mqerr.Invalid), "error: %v", s.Err())
			require.ErrorContains(t, s.Err(), test.text)
		})
	}
}

//fault:network a broker breaks the protocol between proxy and broker => the link ends with an error that says how
func TestBadServer(t *testing.T) {
	const whole = flagFirst | flagLast
	for name, test := range map[string]struct {
		packet []byte
		text   string
	}{
		"request to a client":  {frame(kindRequest, whole, 1, request(Send, 0)...), "for servers"},
		"cancel":               {frame(kindCancel, 0, 1), "for servers"},
		"not open":             {frame(kindReply, whole, 9, 0, 0, 0, 0), "not open"},
		"not complete":         {frame(kindReply, whole, 2, 0, 0, 0, 0), "not complete"},
		"middle first":         {frame(kindReply, 0, 1), "out of turn"},
		"first twice":          {join(frame(kindReply, flagFirst, 1, 5, 0, 0, 0), frame(kindReply, flagFirst, 1, 5, 0, 0, 0)), "out of turn"},
		"oversize":             {frame(kindReply, flagFirst, 1, 0, 0, 0, 0xFF), "at most"},
		"short":                {frame(kindReply, flagFirst, 1, 0), "1 bytes, not 4"},
		"a second whole reply": {join(frame(kindReply, whole, 1, 0, 0, 0, 0), frame(kindReply, whole, 1, 0, 0, 0, 0)), "not open"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				near, far := Pipe()
				c := NewClient(near, ClientOptions{})
				sent, half := newCall(t, Send, []byte("x")), newCall(t, Send, make([]byte, 1<<20))
				c.Start(&sent.Call)
				require.NoError(t, far.Send(windows(1<<20)))
				synctest.Wait()
				c.Start(&half.Call)
				for range 2 { // windows and sent; the pipe does not hold all of half
					_, err := far.Recv()
					require.NoError(t, err)
				}
				synctest.Wait()
				require.NoError(t, far.Send(test.packet))
				c.Wait()
				require.True(t, mqerr.Is(c.Err(), mqerr.Invalid), "error: %v", c.Err())
				require.ErrorContains(t, c.Err(), test.text)
				<-sent.done
				<-half.done
			})
		})
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(join(windows(5), frame(kindPing, 0, 0)))
	f.Add(frame(kindRequest, flagFirst|flagLast, 1, request(Send, 1, 7)...))
	f.Add([]byte{2, 1, 255, 255})
	f.Fuzz(func(t *testing.T, packet []byte) {
		for len(packet) > 0 {
			h, payload, rest, err := nextFrame(packet)
			if err != nil {
				if !mqerr.Is(err, mqerr.Invalid) {
					t.Fatalf("kind of %v", err)
				}
				return
			}
			again := append(appendHead(nil, h), payload...)
			if string(again) != string(packet[:len(again)]) || len(again)+len(rest) != len(packet) {
				t.Fatalf("%x became %x", packet, again)
			}
			packet = rest
		}
	})
}

// FuzzPeer gives packets of a wild peer to both sides: neither panics nor hangs, and every call ends.
func FuzzPeer(f *testing.F) {
	f.Add(frame(kindRequest, flagFirst|flagLast, 1, request(Send, 1, 7)...), []byte(nil))
	f.Add(frame(kindRequest, flagFirst, 1, request(Pop, 3, 7)...), join(frame(kindRequest, 0, 1, 1), frame(kindCancel, 0, 1), frame(kindGoaway, 0, 0)))
	f.Add(frame(kindReply, flagFirst|flagLast, 1, 0, 0, 0, 0), frame(kindReply, flagFirst|flagLast, 2, 1, 0, 0, 0, 9))
	f.Add(frame(kindReply, flagFirst, 3, 9, 0, 0, 0), join(frame(kindReply, flagLast, 3, make([]byte, 9)...), frame(kindGoaway, 0, 0)))
	f.Add(join(frame(kindCredit, 0, 1, 255, 255, 255, 255), frame(kindPing, 0, 0), frame(kindPong, 0, 0)), frame(kindEvent, 0, 0, 1, 2))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		play := func(peer Transport) {
			go func() {
				for {
					if _, err := peer.Recv(); err != nil {
						return
					}
				}
			}()
			for _, p := range [][]byte{windows(1 << 20), first, second} {
				if peer.Send(p) != nil {
					return
				}
			}
			time.AfterFunc(time.Millisecond, func() { _ = peer.Close() })
		}
		near, far := Pipe()
		s := NewServer(far, &handler{}, Options{Window: [Classes]int64{1 << 20, 1 << 20, 1 << 20}})
		play(near)
		s.Wait()

		near, far = Pipe()
		c := NewClient(near, ClientOptions{Options: Options{Window: [Classes]int64{1 << 20, 1 << 20, 1 << 20}}})
		var calls []*call
		for i := range 3 {
			k := newCall(t, Class(i), []byte("x"))
			c.Start(&k.Call)
			calls = append(calls, k)
		}
		play(far)
		c.Wait()
		for _, k := range calls {
			<-k.done
		}
	})
}
