package main

import (
	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/proxy/server"
)

// requestBounds are the settings that bound messages and what one call takes or gives. The defaults are those of
// the reference server.
type requestBounds struct {
	MaxBodyBytes     cfg.Bytes `koanf:"max-body-bytes" help:"body of a message as it is sent; clients are told; at most 16MiB"`
	MaxBatchBytes    cfg.Bytes `koanf:"max-batch-bytes" help:"bodies of one send together; at most 16MiB"`
	MaxProperties    int       `koanf:"max-properties" help:"user properties of a message"`
	MaxPropertyBytes cfg.Bytes `koanf:"max-property-bytes" help:"user properties, tag and keys of a message together"`
	MaxSystemBytes   cfg.Bytes `koanf:"max-system-bytes" help:"system properties of a message as they are sent"`
	MaxGroupBytes    int       `koanf:"max-message-group-bytes" help:"message group of a message"`
	MaxReceiveBatch  int       `koanf:"max-receive-batch" help:"messages of one receive or pull; clients are told; 1 to 1024"`
	MaxReceiveBytes  cfg.Bytes `koanf:"max-receive-bytes" help:"messages of one receive or pull together, but one message always comes; at most 16MiB"`
}

func defaultRequestBounds() requestBounds {
	return requestBounds{
		MaxBodyBytes: 4 << 20, MaxBatchBytes: 4 << 20, MaxProperties: 128, MaxPropertyBytes: 16 << 10, MaxSystemBytes: 32 << 10, MaxGroupBytes: 63,
		MaxReceiveBatch: 32, MaxReceiveBytes: 4 << 20,
	}
}

// Bounds of the bounds: a request and its answer go over a link in one message of 32 MiB at most, properties beside
// the body.
const (
	requestBytesMost  = 16 << 20
	propertyBytesMost = 1 << 20
)

func (s requestBounds) check() error {
	for name, b := range map[string]struct{ have, most int64 }{
		"max-body-bytes": {int64(s.MaxBodyBytes), requestBytesMost}, "max-batch-bytes": {int64(s.MaxBatchBytes), requestBytesMost},
		"max-receive-bytes": {int64(s.MaxReceiveBytes), requestBytesMost}, "max-property-bytes": {int64(s.MaxPropertyBytes), propertyBytesMost},
		"max-system-bytes": {int64(s.MaxSystemBytes), propertyBytesMost},
	} {
		if b.have < 1<<10 || b.have > b.most {
			return usageError("--%s %s: use 1KiB to %s", name, new(cfg.Bytes(b.have)).String(), new(cfg.Bytes(b.most)).String())
		}
	}
	for name, b := range map[string]struct{ have, most int }{
		"max-properties": {s.MaxProperties, 1 << 16}, "max-message-group-bytes": {s.MaxGroupBytes, 1024}, "max-receive-batch": {s.MaxReceiveBatch, 1024},
	} {
		if b.have < 1 || b.have > b.most {
			return usageError("--%s %d: use 1 to %d", name, b.have, b.most)
		}
	}
	return nil
}

func (s requestBounds) apply(l *server.Limits) {
	l.BodyBytes, l.BatchBytes = int(s.MaxBodyBytes), int(s.MaxBatchBytes)
	l.Properties, l.PropertyBytes, l.SystemBytes = s.MaxProperties, int(s.MaxPropertyBytes), int(s.MaxSystemBytes)
	l.GroupNameBytes, l.ReceiveBatch, l.ReceiveBytes = s.MaxGroupBytes, s.MaxReceiveBatch, int(s.MaxReceiveBytes)
}
