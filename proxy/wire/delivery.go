package wire

import (
	"encoding/hex"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Delivery is what the proxy adds to a leased message. Topic is the content of the topic's Resource
// as the client wrote it in its request.
type Delivery struct {
	Topic     []byte
	StoreHost string
	Handle    []byte // receipt handle
}

const (
	digestMD5  = 2
	digestSize = 2 + 2 + 32 // type, then the checksum's tag, length and hex text
)

func addedSize(m *brokerapi.Delivery, d *Delivery) int {
	return headSize(4, digestSize) + digestSize + timeSize(9, m.StoreTime) + textSize(10, len(d.StoreHost)) +
		textSize(12, len(d.Handle)) + intSize(13, int64(m.Queue)) + presentIntSize(14, int64(m.Offset)) +
		presentIntSize(16, int64(m.Attempt))
}

func presentIntSize(num int32, v int64) int { return max(intSize(num, v), intSize(num, 1)) }

func messageSize(m *brokerapi.Delivery, d *Delivery, sys int) int {
	return headSize(1, len(d.Topic)) + len(d.Topic) + len(m.User) + headSize(3, sys) + sys + textSize(4, len(m.Body))
}

// DeliverySize is the number of bytes that AppendDelivery appends.
func DeliverySize(m *brokerapi.Delivery, d *Delivery) int {
	n := messageSize(m, d, len(m.Sys)+addedSize(m, d))
	return headSize(2, n) + n
}

// AppendDelivery appends a ReceiveMessageResponse with a message: the stored spans copied once, with
// the server's own fields between them.
func AppendDelivery(dst []byte, m *brokerapi.Delivery, d *Delivery) []byte {
	sys := len(m.Sys) + addedSize(m, d)
	return appendMessage(appendHead(dst, 2, messageSize(m, d, sys)), m, d, sys)
}

// appendMessage appends the content of a Message whose system properties have sys bytes.
func appendMessage(dst []byte, m *brokerapi.Delivery, d *Delivery, sys int) []byte {
	dst = append(appendHead(dst, 1, len(d.Topic)), d.Topic...)
	dst = append(dst, m.User...)
	dst = append(appendHead(dst, 3, sys), m.Sys...)
	dst = appendDigest(dst, m.Digest)
	dst = appendTime(dst, 9, m.StoreTime)
	dst = appendText(dst, 10, d.StoreHost)
	dst = appendText(dst, 12, d.Handle)
	dst = appendInt(dst, 13, int64(m.Queue))
	dst = appendPresentInt(dst, 14, int64(m.Offset))
	dst = appendPresentInt(dst, 16, int64(m.Attempt))
	return appendText(dst, 4, m.Body)
}

// appendDigest appends body_digest: MD5 in upper-case hex, the only form that every client accepts.
func appendDigest(dst []byte, sum [16]byte) []byte {
	dst = appendHead(dst, 4, digestSize)
	dst = appendInt(dst, 1, digestMD5)
	dst = appendHead(dst, 2, 2*len(sum))
	at := len(dst)
	dst = hex.AppendEncode(dst, sum[:])
	for i := at; i < len(dst); i++ {
		if dst[i] >= 'a' {
			dst[i] -= 'a' - 'A'
		}
	}
	return dst
}
