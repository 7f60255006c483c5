package engine

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// readable is messageOf as a consumer sees it. givenUp is the topic whose transactions come to the
// consumer's topic when they are given up, "" for any other topic.
func readable(givenUp string, rec *record.Record) (record.Msg, error) {
	m, err := messageOf(rec)
	if err == nil && givenUp != "" && rec.Type == record.TypeMsg && m.Type == record.MsgTransaction {
		m = withoutAnswer(m, givenUp)
	}
	return m, err
}

// messageOf is the message of a record to which a consume queue may point: a stored message, or one that
// was moved to another topic. Its slices alias the record, but where something is added for the reader.
func messageOf(rec *record.Record) (record.Msg, error) {
	switch rec.Type {
	case record.TypeMsg:
		return record.DecodeMsg(rec.Body)
	case record.TypeDead:
		d, err := record.DecodeDead(rec.Body)
		if err != nil {
			return record.Msg{}, err
		}
		d.Msg.User = withReason(&d)
		return d.Msg, nil
	}
	return record.Msg{}, mqerr.New(mqerr.Corrupt, "the record at %d is no message but %v", rec.Pos, rec.Type)
}
