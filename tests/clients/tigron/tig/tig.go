// Package tig is a stand-in: nerdctl's go.mod replaces its test helper module
// by a folder that its own module does not ship. Only this type is needed for
// the nerdctl command to compile.
package tig

import "testing"

type T = testing.TB
