package membroker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	brokerapitest.Run(t, func(t *testing.T) brokerapitest.Harness {
		h, _ := brokerapitest.Memory(t)
		return h
	})
}
