//go:build !linux

package chaostest

func cage() (int, bool) { return 0, false }

func prepare() error { return nil }
