package inspect

import (
	"encoding/hex"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain is a decoded record as JSON shows it: fields by name in snake_case, bytes as text, or as hex where they
// are none.
func plain(v any) any { return plainOf(reflect.ValueOf(v)) }

func plainOf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plainOf(v.Elem())
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				out[snake(f.Name)] = plainOf(v.Field(i))
			}
		}
		return out
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, v.Len())
			reflect.Copy(reflect.ValueOf(b), v)
			if utf8.Valid(b) {
				return string(b)
			}
			return hex.EncodeToString(b)
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = plainOf(v.Index(i))
		}
		return out
	}
	return v.Interface()
}

// snake turns a Go name into snake_case: HeldEntries is held_entries, ID is id.
func snake(name string) string {
	var b strings.Builder
	before := 'A'
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(before) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return b.String()
}
