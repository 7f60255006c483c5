package wire

import "google.golang.org/protobuf/encoding/protowire"

// StatusCode returns the code of the Status with which an answer begins, false if it begins with something
// else. In every answer of the public service the status is field 1.
func StatusCode(answer []byte) (int32, bool) {
	num, typ, n := protowire.ConsumeTag(answer)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return 0, false
	}
	status, n := protowire.ConsumeBytes(answer[n:])
	if n < 0 {
		return 0, false
	}
	for len(status) > 0 {
		num, typ, n := protowire.ConsumeTag(status)
		if n < 0 {
			return 0, false
		}
		if num == 1 && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(status[n:])
			return int32(v), n >= 0
		}
		m := protowire.ConsumeFieldValue(num, typ, status[n:])
		if m < 0 {
			return 0, false
		}
		status = status[n+m:]
	}
	return 0, true
}
