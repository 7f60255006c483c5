package record

const metaDeleted uint8 = 1

// put says the layout of a Meta:
//
//	byte kind, byte flags (1 deleted)
//	uvarint version, uvarint id
//	uvarint length and name, uvarint length and value
func (m *Meta) put(s *sink) {
	flags := uint8(0)
	if m.Deleted {
		flags = metaDeleted
	}
	s.u8(uint8(m.Kind))
	s.u8(flags)
	s.uvarint(m.Version)
	s.uvarint(uint64(m.ID))
	s.bytes(m.Name)
	s.bytes(m.Value)
}

// MetaSize is the length of m as a body.
func MetaSize(m *Meta) int {
	var s sink
	m.put(&s)
	return s.n
}

// PutMeta writes m to dst, MetaSize bytes long.
func PutMeta(dst []byte, m *Meta) {
	s := start(dst)
	m.put(&s)
	s.end(dst)
}

// DecodeMeta reads the body of a TypeMeta record.
func DecodeMeta(body []byte) (m Meta, err error) {
	s := source{b: body}
	m.Kind = MetaKind(s.u8())
	m.Deleted = s.flags(metaDeleted) != 0
	m.Version, m.ID = s.uvarint(), s.id32()
	m.Name, m.Value = s.bytes(), s.bytes()
	return m, s.end(TypeMeta)
}

// put says the layout of an EpochStart:
//
//	uvarint epoch, uvarint incarnation, 16 bytes replica, uvarint version
//	uvarint number of replicas in sync, 16 bytes each
func (e *EpochStart) put(s *sink) {
	s.uvarint(uint64(e.Epoch))
	s.uvarint(e.Incarnation)
	s.raw(e.Replica[:])
	s.uvarint(e.Version)
	s.count(len(e.Sync))
	for i := range e.Sync {
		s.raw(e.Sync[i][:])
	}
}

// EpochStartSize is the length of e as a body.
func EpochStartSize(e *EpochStart) int {
	var s sink
	e.put(&s)
	return s.n
}

// PutEpochStart writes e to dst, EpochStartSize bytes long.
func PutEpochStart(dst []byte, e *EpochStart) {
	s := start(dst)
	e.put(&s)
	s.end(dst)
}

// DecodeEpochStart reads the body of a TypeEpoch record.
func DecodeEpochStart(body []byte) (e EpochStart, err error) {
	s := source{b: body}
	e.Epoch, e.Incarnation = Epoch(s.uvarint()), s.uvarint()
	copy(e.Replica[:], s.raw(16))
	e.Version = s.uvarint()
	for range s.count(16) {
		e.Sync = append(e.Sync, [16]byte(s.raw(16)))
	}
	return e, s.end(TypeEpoch)
}
