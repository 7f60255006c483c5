package cfg

import (
	"errors"
	"strconv"
	"strings"
)

// Bytes is a size: a number with an optional unit B, KiB, MiB, GiB or TiB.
type Bytes int64

var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

// String returns the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range units {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Type names the kind of setting, for help texts.
func (b *Bytes) Type() string { return "size" }

// Set reads a size.
func (b *Bytes) Set(text string) error {
	s, unit := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return errors.New("write a size as a number with B, KiB, MiB, GiB or TiB")
	}
	*b = Bytes(n * unit)
	return nil
}
