package abuse

import (
	"errors"
	"io"
)

// ignoreEnd is nil for the end of a stream.
func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
