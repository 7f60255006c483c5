package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// FormatVersion is the version of encoded commands and snapshots. It rises when an older release
// could misread a new one. docs/format/controller.md has the history.
const FormatVersion = 1

// envelope is an encoded command. Release is that of the writer, for the sentence that an older
// reader says.
type envelope struct {
	V       int             `json:"v"`
	Release string          `json:"release"`
	Op      string          `json:"op"`
	Command json.RawMessage `json:"command"`
}

// EncodeCommand returns the stored form of a command: one JSON object.
func EncodeCommand(c Command, release string) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, mqerr.New(mqerr.Internal, "command %s: %w", c.op(), err)
	}
	return json.Marshal(envelope{V: FormatVersion, Release: release, Op: c.op(), Command: body})
}

// decoders has one entry for every command that was ever written.
var decoders = map[string]func([]byte) (Command, error){
	Init{}.op():            decodeAs[Init],
	RegisterReplica{}.op(): decodeAs[RegisterReplica],
	Enroll{}.op():          decodeAs[Enroll],
	Elect{}.op():           decodeAs[Elect],
	Resign{}.op():          decodeAs[Resign],
	AlterS{}.op():          decodeAs[AlterS],
	SetApplied{}.op():      decodeAs[SetApplied],
	PutTopic{}.op():        decodeAs[PutTopic],
	DeleteTopic{}.op():     decodeAs[DeleteTopic],
	GrowTopic{}.op():       decodeAs[GrowTopic],
	EnsureTopic{}.op():     decodeAs[EnsureTopic],
	PutGroup{}.op():        decodeAs[PutGroup],
	DeleteGroup{}.op():     decodeAs[DeleteGroup],
	RotateKey{}.op():       decodeAs[RotateKey],
	UseKey{}.op():          decodeAs[UseKey],

	UncleanElect{}.op():    decodeAs[UncleanElect],
	SetShard{}.op():        decodeAs[SetShard],
	RemoveReplica{}.op():   decodeAs[RemoveReplica],
	DeleteShard{}.op():     decodeAs[DeleteShard],
	RaiseGeneration{}.op(): decodeAs[RaiseGeneration],

	PutController{}.op():    decodeAs[PutController],
	RemoveController{}.op(): decodeAs[RemoveController],
}

func decodeAs[C Command](b []byte) (Command, error) {
	var c C
	err := strict(b, &c)
	return c, err
}

// DecodeCommand reads a stored command. A version, command or field that this release does not know
// is Unsupported: skipping it would make this node's state differ from the others'.
func DecodeCommand(b []byte) (Command, error) {
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, mqerr.New(mqerr.Corrupt, "a command does not decode: %w", err)
	}
	decode := decoders[e.Op]
	if e.V != FormatVersion || decode == nil {
		return nil, newer("a command", e.V, e.Release, fmt.Sprintf("kind %q", e.Op))
	}
	c, err := decode(e.Command)
	if err != nil {
		return nil, newer("a command", e.V, e.Release, err.Error())
	}
	return c, nil
}

func newer(what string, v int, release, why string) error {
	return mqerr.New(mqerr.Unsupported, "%s was written by release %q in format %d and this release (format %d) does not know it (%s): run release %[2]q or a later one", what, release, v, FormatVersion, why)
}

// strict decodes one JSON value without unknown fields and with nothing behind it.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF { //nolint:errorlint // Token returns it bare
		return fmt.Errorf("something follows the value")
	}
	return nil
}
