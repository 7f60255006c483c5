//go:build !linux

package chaostest

import "errors"

func cage() (int, bool) { return 0, false }

func prepare() error { return nil }

func mountSmall(string, int64) error { return errors.ErrUnsupported }

func unmountSmall(string) error { return errors.ErrUnsupported }
