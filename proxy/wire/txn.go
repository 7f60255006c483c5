package wire

import "github.com/perigee-mq/perigee/internal/brokerapi"

// EndTransactionRequest gives the verdict of a transaction.
type EndTransactionRequest struct {
	Topic         Resource
	MessageID     []byte
	TransactionID []byte
	Resolution    int32
	Source        int32
}

// Decode reads an EndTransactionRequest.
func (q *EndTransactionRequest) Decode(b []byte) error {
	*q = EndTransactionRequest{}
	r := reader{b: b}
	var f field
	var ignored []byte
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.also(q.Topic.decode(place{message: b, num: f.num}, f.data))
		case f.is(2, typeBytes):
			r.text(&q.MessageID, &f)
		case f.is(3, typeBytes):
			r.text(&q.TransactionID, &f)
		case f.is(4, typeVarint):
			q.Resolution = int32(f.val)
		case f.is(5, typeVarint):
			q.Source = int32(f.val)
		case f.is(6, typeBytes):
			r.text(&ignored, &f)
		}
	}
	return r.err
}

// MessageID returns the message id of stored system properties, nil if there is none.
func MessageID(sys []byte) []byte {
	r := reader{b: sys}
	var f field
	var id []byte
	for r.next(&f) {
		if f.is(3, typeBytes) {
			id = f.data
		}
	}
	return id
}

// AppendCheck appends a TelemetryCommand that asks for the verdict of a half message: it has everything
// that a delivery has, but for a receipt handle.
func AppendCheck(dst []byte, m *brokerapi.Delivery, d *Delivery, transaction []byte) []byte {
	sys := len(m.Sys) + addedSize(m, d)
	message := messageSize(m, d, sys)
	dst = appendHead(dst, 5, headSize(1, message)+message+textSize(2, len(transaction)))
	dst = appendMessage(appendHead(dst, 1, message), m, d, sys)
	return appendText(dst, 2, transaction)
}

// AppendName appends the content of a Resource without namespace.
func AppendName(dst []byte, name string) []byte { return appendText(dst, 2, name) }
