package segment

import "testing"

func FuzzParseName(f *testing.F) {
	f.Add(Name(1 << 30))
	f.Add("0000000000000000000x")
	f.Fuzz(func(t *testing.T, name string) {
		if base, ok := ParseName(name); ok && (base < 0 || Name(base) != name) {
			t.Fatalf("%q is %d", name, base)
		}
	})
}
