package main

import (
	"time"

	"github.com/perigee-mq/perigee/broker/engine"
)

// txnSettings are the settings of transactions, of processes with a broker in them.
type txnSettings struct {
	CheckAfter    time.Duration `koanf:"txn-check-after" help:"when a transaction that nobody has ended is checked first, if its sender has not said so; a topic may have its own"`
	CheckInterval time.Duration `koanf:"txn-check-interval" help:"time between two checks of a transaction; a topic may have its own"`
	CheckLimit    int           `koanf:"txn-check-limit" help:"checks of a transaction; an interval after the last one it is given up and moved to the topic %TXN%TOPIC; a topic may have its own number"`
	GiveUpAfter   time.Duration `koanf:"txn-give-up-after" help:"age at which a transaction is given up that could not be checked because its topic has no producer"`
	OpenMax       int           `koanf:"txn-open-max" help:"transactions that nobody has ended, at most; more are refused"`
	VerdictsMax   int           `koanf:"txn-verdicts-max" help:"ended transactions that are remembered, at most, so that a repeated or contradicting end is known as such"`
	VerdictsFor   time.Duration `koanf:"txn-verdicts-for" help:"how long ended transactions are remembered, at most"`
}

func defaultTxn() txnSettings {
	return txnSettings{
		CheckAfter: 6 * time.Second, CheckInterval: 30 * time.Second, CheckLimit: 15, GiveUpAfter: 24 * time.Hour,
		OpenMax: 1_000_000, VerdictsMax: 1_000_000, VerdictsFor: 24 * time.Hour,
	}
}

func (s txnSettings) check() error {
	switch {
	case s.CheckAfter < time.Millisecond, s.CheckInterval < time.Second, s.GiveUpAfter < time.Second, s.VerdictsFor < time.Second:
		return usageError("--txn-check-after must be at least 1ms, --txn-check-interval, --txn-give-up-after and --txn-verdicts-for at least 1s")
	case s.CheckLimit < 1, s.OpenMax < 1, s.VerdictsMax < 1:
		return usageError("--txn-check-limit, --txn-open-max and --txn-verdicts-max must be at least 1")
	}
	return nil
}

// options returns the engine's options of the settings.
func (s txnSettings) options() engine.TxnOptions {
	return engine.TxnOptions{
		CheckAfter: s.CheckAfter, CheckInterval: s.CheckInterval, CheckLimit: s.CheckLimit, GiveUpAfter: s.GiveUpAfter,
		OpenMax: s.OpenMax, VerdictsMax: s.VerdictsMax, VerdictsFor: s.VerdictsFor,
	}
}
