package brokerlink_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/link/brokerlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// linked is a Connector whose sessions go over a link in memory.
type linked struct {
	t *testing.T
	c brokerapi.Connector
	o link.Options
}

func (l linked) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	near, far := link.Pipe()
	server, err := brokerlink.NewServer(far, l.c, proxy, l.o)
	if err != nil {
		return nil, err
	}
	return closing{brokerlink.NewClient(near, ev, l.o), server}, nil
}

// closing waits for the server's end, so that a test sees what is left of it.
type closing struct {
	*brokerlink.Client
	s *brokerlink.Server
}

func (c closing) Close() error {
	err := c.Client.Close()
	c.s.Wait()
	return err
}

func TestSuite(t *testing.T) {
	brokerapitest.Run(t, func(t *testing.T) brokerapitest.Harness {
		h, _ := brokerapitest.Memory(t)
		h.Connector = linked{t: t, c: h.Connector}
		return h
	})
}

// With tiny windows everything waits for credit all the time.
func TestSuiteWithTinyWindows(t *testing.T) {
	brokerapitest.Run(t, func(t *testing.T) brokerapitest.Harness {
		h, _ := brokerapitest.Memory(t)
		h.Connector = linked{t: t, c: h.Connector, o: link.Options{Window: [link.Classes]int64{1, 1 << 20, 1}}}
		return h
	})
}
