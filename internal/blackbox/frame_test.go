package blackbox

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

// http2Client speaks HTTP/2 without TLS, so that a test can send frames that no gRPC library makes.
func http2Client() *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: &p}}
}

// post sends a body as a gRPC call and returns the gRPC status, or the HTTP status if there is none.
func post(t *testing.T, hc *http.Client, addr, method string, body io.Reader, change func(*http.Request)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+method, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("content-type", "application/grpc")
	req.Header.Set("te", "trailers")
	req.Header.Set("x-mq-client-id", "frames")
	if change != nil {
		change(req)
	}
	resp, err := hc.Do(req)
	if err != nil {
		return "error"
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		if s := h.Get("grpc-status"); s != "" {
			return "grpc " + s
		}
	}
	return resp.Status
}

// framed is a gRPC frame: flag, length, content. The length may lie.
func framed(flag byte, length uint32, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, length), content...)
}

func zipped(n int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.CopyN(w, zeros{}, int64(n))
	_ = w.Close()
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// endless is a request body that stops coming and does not end before its request.
type endless struct {
	io.Reader
	ctx context.Context
}

func (e endless) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		<-e.ctx.Done()
	}
	return n, err
}

// TestFrames sends gRPC frames that no library sends. The codes are grpc-go's; that there is an answer,
// and that the next call works, is what matters.
func TestFrames(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	p.put(1)
	good, err := proto.Marshal(request("QueryRoute", p.topic, ""))
	if err != nil {
		t.Fatal(err)
	}
	zip := func(r *http.Request) { r.Header.Set("grpc-encoding", "gzip") }
	header := func(key, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header[key] = []string{value} }
	}
	const (
		tooLarge = "grpc 8"                        // ResourceExhausted
		bad      = "grpc 2|grpc 3|grpc 13|grpc 12" // Unknown, InvalidArgument, Internal, Unimplemented
		notGRPC  = "415 Unsupported Media Type|grpc 3"
	)
	route := service + "QueryRoute"
	for _, x := range []struct {
		name, method string
		body         []byte
		change       func(*http.Request)
		want         string
	}{
		{"good", route, framed(0, uint32(len(good)), good), nil, "grpc 0"},
		{"130 MiB and 1 announced", route, framed(0, 130<<20+1, good), nil, tooLarge},
		{"4 GiB announced", route, framed(0, 1<<32-1, good), nil, tooLarge},
		{"4 GiB announced to a stream", service + "Telemetry", framed(0, 1<<32-1, good), nil, tooLarge},
		{"4 GiB announced to a receive", service + "ReceiveMessage", framed(0, 1<<32-1, good), nil, tooLarge},
		{"more announced than sent", route, framed(0, uint32(len(good)+1), good), nil, bad},
		{"less announced than sent", route, framed(0, uint32(len(good)-1), good), nil, bad + "|grpc 0"},
		{"no frame", route, nil, nil, bad},
		{"half a frame header", route, []byte{0, 0, 0}, nil, bad},
		{"two requests", route, append(framed(0, uint32(len(good)), good), framed(0, uint32(len(good)), good)...), nil, bad + "|grpc 0"},
		{"compressed without a name", route, framed(1, uint32(len(good)), good), nil, bad},
		{"compressed with nothing known", route, framed(1, uint32(len(good)), good), header("Grpc-Encoding", "zebra"), bad},
		{"compressed, but not", route, framed(1, uint32(len(good)), good), zip, bad},
		{"an unknown flag", route, framed(7, uint32(len(good)), good), nil, bad},
		{"a bomb", route, framed(1, uint32(len(zipped(140<<20))), zipped(140<<20)), zip, tooLarge},
		{"a bomb to an ack", service + "AckMessage", framed(1, uint32(len(zipped(140<<20))), zipped(140<<20)), zip, tooLarge},
		{"no such method", service + "Nothing", framed(0, 0, nil), nil, "grpc 12"},
		{"no such service", "/a.b.C/D", framed(0, 0, nil), nil, "grpc 12"},
		{"no method", "/", framed(0, 0, nil), nil, "grpc 12"},
		{"a long path", "/" + strings.Repeat("x", 8<<10) + "/y", framed(0, 0, nil), nil, "grpc 12|error"},
		{"a timeout that is none", route, framed(0, uint32(len(good)), good), header("Grpc-Timeout", "soon"), bad + "|400 Bad Request"},
		{"a negative timeout", route, framed(0, uint32(len(good)), good), header("Grpc-Timeout", "-5S"), bad + "|400 Bad Request"},
		{"a timeout in the past", route, framed(0, uint32(len(good)), good), header("Grpc-Timeout", "0n"), "grpc 4|grpc 0|grpc 13|error"},
		{"the longest timeout", route, framed(0, uint32(len(good)), good), header("Grpc-Timeout", "99999999H"), "grpc 0"},
		{"not gRPC", route, good, header("Content-Type", "application/json"), notGRPC},
		{"no content type", route, good, func(r *http.Request) { r.Header.Del("content-type") }, notGRPC},
		{"GET", route, nil, func(r *http.Request) { r.Method = http.MethodGet }, "405 Method Not Allowed|grpc 13|400 Bad Request"},
		{"a client id that is no text", route, framed(0, uint32(len(good)), good), header("X-Mq-Client-Id", "\xff\xfe"), "grpc 0|error|" + bad},
		{"broken binary metadata", route, framed(0, uint32(len(good)), good), header("X-Bin", "%%%"), "grpc 0|" + bad},
		{"30 KiB of headers", route, framed(0, uint32(len(good)), good), header("X-Large", strings.Repeat("x", 30<<10)), "error|grpc 8|grpc 13|431"},
		{"1 MiB of headers", route, framed(0, uint32(len(good)), good), header("X-Large", strings.Repeat("x", 1<<20)), "error|grpc 8|grpc 13|431"},
		{"300 headers", route, framed(0, uint32(len(good)), good), func(r *http.Request) {
			for range 300 {
				r.Header.Add("x-many", "0123456789")
			}
		}, "grpc 0|error"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			hc := http2Client()
			defer hc.CloseIdleConnections()
			got := post(t, hc, d.grpc, x.method, bytes.NewReader(x.body), x.change)
			ok := false
			for w := range strings.SplitSeq(x.want, "|") {
				ok = ok || got == w || strings.HasPrefix(got, w+" ")
			}
			if !ok {
				t.Errorf("answered %q, want %s", got, x.want)
			}
			c.do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, "")).is(t, "OK")
		})
	}
}

// TestStalledRequests: requests that begin and do not end hold nothing up, and end with their callers.
func TestStalledRequests(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	p.put(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	hc := http2Client()
	defer hc.CloseIdleConnections()
	began := make(chan bool, 200)
	for i := range 200 {
		method := string(methods().Get(i % methods().Len()).Name())
		body := endless{Reader: bytes.NewReader(framed(0, 1<<20, make([]byte, 1000))), ctx: ctx}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.grpc+service+method, io.MultiReader(told{began}, body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("content-type", "application/grpc")
		go func() {
			if resp, err := hc.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	for range 200 {
		<-began
	}
	for range 20 {
		a := c.do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, ""))
		if a.is(t, "OK"); a.took > time.Second {
			t.Errorf("a call took %v while others were stalled", a.took)
		}
	}
	p.finish(p.take(1))
}

// told says that somebody reads.
type told struct{ c chan bool }

func (r told) Read([]byte) (int, error) {
	r.c <- true
	return 0, io.EOF
}

// TestMetadata: a client can send as much metadata as the protocol's servers take, and hears of more.
func TestMetadata(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	large := func(n int) *client { return c.with("x-large", strings.Repeat("x", n)) }
	large(7<<10).do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, "")).is(t, "OK")
	for range 3 {
		large(1<<20).do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, "")).is(t, "Internal|ResourceExhausted|Unavailable|InvalidArgument")
		c.do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, "")).is(t, "OK")
	}
}
