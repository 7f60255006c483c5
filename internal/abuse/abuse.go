// Package abuse tests a real `perigee dev` process against loads and clients that no service should meet, and
// some day does: very many connections and waiting receives, clients that do not read, that come and go at full
// rate, that talk too slowly, too much or nonsense. In each the process stays below its memory limit, serves
// others meanwhile, and is back at rest afterwards.
//
// The tests are small by default; TEST_ABUSE_FULL=1 (`make abuse`) gives them their full size and prints figures.
package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running perigee dev.
type process struct {
	cmd        *exec.Cmd
	grpc, http string
	ended      chan struct{}
}

// launch starts bin and waits until it is ready. Settings in the environment do not reach it.
func launch(bin, dir string, log io.Writer, args ...string) (*process, error) {
	args = append([]string{"dev", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)
	p := &process{cmd: exec.Command(bin, args...), ended: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PERIGEE_") && !strings.HasPrefix(v, "GOMEMLIMIT=") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if rest, ok := strings.CutPrefix(sc.Text(), "ready "); ok {
				ready <- rest
			}
		}
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	select {
	case line := <-ready:
		for part := range strings.FieldsSeq(line) {
			switch key, value, _ := strings.Cut(part, "="); key {
			case "grpc":
				p.grpc = value
			case "http":
				p.http = value
			}
		}
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("perigee ended before it was ready")
	case <-time.After(60 * time.Second):
		_ = p.cmd.Process.Kill()
		return nil, fmt.Errorf("perigee was not ready within a minute")
	}
}

// stop ends the process.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("perigee ended with code %d", code)
		}
		return nil
	case <-time.After(60 * time.Second):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("perigee did not end within a minute of SIGTERM")
	}
}

// anonymous is the resident anonymous memory of the process in bytes; peak is the most it had resident, files
// that are mapped included.
func (p *process) anonymous() (now int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no RssAnon")
}

// cpu is the processor time that the process has used.
func (p *process) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// metric sums the samples of a metric whose line contains all of labels. One that is not there is an error: nobody
// knows that it is 0.
func (p *process) metric(name string, labels ...string) (sum float64, err error) {
	resp, err := http.Get("http://" + p.http + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	found := false
lines:
	for sc.Scan() {
		line := sc.Text()
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+v, true
	}
	if err := sc.Err(); err != nil || found {
		return sum, err
	}
	return 0, fmt.Errorf("/metrics does not show %s %v", name, labels)
}

// Frames of HTTP/2, as far as they are needed to misuse it.
const (
	preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	typeHeaders = 1
	typeReset   = 3
	typeSetting = 4
	typePing    = 6
	endHeaders  = 4
	endStream   = 1
)

// frame encodes one frame.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}
	return append(head, payload...)
}

// headers encodes header fields as literals, each shorter than 127 bytes.
func headers(pairs ...string) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = append(b, 0, byte(len(pairs[i])))
		b = append(b, pairs[i]...)
		b = append(b, byte(len(pairs[i+1])))
		b = append(b, pairs[i+1]...)
	}
	return b
}

// request is the head of a call.
func request(stream uint32, method string) []byte {
	return frame(typeHeaders, endHeaders, stream, headers(":method", "POST", ":scheme", "http", ":path", "/apache.rocketmq.v2.MessagingService/"+method,
		":authority", "abuse", "content-type", "application/grpc", "te", "trailers", "x-mq-client-id", "abuse"))
}

// open connects and begins HTTP/2.
func (p *process) open() (net.Conn, error) {
	c, err := net.Dial("tcp", p.grpc)
	if err != nil {
		return nil, err
	}
	_, err = c.Write(append([]byte(preface), frame(typeSetting, 0, 0, nil)...))
	return c, err
}
