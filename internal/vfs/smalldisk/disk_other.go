//go:build !linux

package smalldisk

import (
	"errors"
	"os"
)

func mount(string, int64) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

func free(string) (int64, error) { return 0, errors.ErrUnsupported }
