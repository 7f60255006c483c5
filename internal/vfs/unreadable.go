package vfs

import (
	"errors"
	"io"
	"syscall"
)

// Unreadable tells whether the error of a ReadAt within a file says that its bytes are lost: the disk cannot read them,
// the file system found them damaged, or the file was cut. All other errors say nothing of the bytes.
func Unreadable(err error) bool {
	for _, lost := range []error{syscall.EIO, syscall.EBADMSG, syscall.ENODATA, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}
