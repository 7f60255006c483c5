package codec

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// JSON encodes a request or reply of the calls that block.
func (e *Encoder) JSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return mqerr.New(mqerr.Invalid, "a %T that has no JSON form: %w", v, err)
	}
	e.meta = append(e.meta, b...)
	return nil
}

// DecodeJSON decodes what JSON encodes. A field that this release does not know is refused: what it asks
// for could not be done.
func DecodeJSON[T any](b []byte) (*T, error) {
	v := new(T)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return nil, mqerr.New(mqerr.Invalid, "%T that cannot be decoded: %w", *v, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, mqerr.New(mqerr.Invalid, "%T with bytes too many", *v)
	}
	return v, nil
}
