package storetest

import "testing"

func TestSuite(t *testing.T) { Backends(t, Suite) }
