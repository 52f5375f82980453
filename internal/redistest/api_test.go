// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAPIOf checks the lines of every kind of exported name, and that unexported ones have none.
func TestAPIOf(t *testing.T) {
	got := apiOf(checked(t, `package p

// Comments do not count.
type Kind uint8

const (
	A Kind = iota
	B
	c
)

type Pair[T any] struct {
	First, Second T
	Name          string `+"`json:\"name\"`"+`
	hidden, more  int
}

func (p *Pair[T]) Swap(by int) (swapped bool) { return }
func (p Pair[T]) Len() int                      { return 0 }
func (p Pair[T]) len() int                      { return 0 }

type Face interface {
	Look(at ...string) error
	wink()
}

type base struct{ Depth int }

func (base) Measure() int { return 0 }

type Over struct {
	base
	Kind
}

type Same = Kind

var Default *Over

func Make(f func(k Kind) bool) (*Over, error) { return nil, nil }
func unmade()                                 {}
`))
	require.Equal(t, strings.TrimLeft(`
const A Kind = 0
const B Kind = 1
func Make(f func(k Kind) bool) (*Over, error)
method (*Pair[T any]) Swap(by int) (swapped bool)
method (Over) Measure() int
method (Pair[T any]) Len() int
type Face interface
type Face interface, Look(at ...string) error
type Face interface, unexported methods
type Kind uint8
type Over struct
type Over struct, embedded Kind
type Over struct, unexported fields
type Pair[T any] struct
type Pair[T any] struct, First T
type Pair[T any] struct, Name string `+"`json:\"name\"`"+`
type Pair[T any] struct, Second T
type Pair[T any] struct, unexported fields
type Same = Kind
var Default *Over
`, "\n"), got)
}

// TestAPIDiff checks that the comparison tells a name that was added from a type that changed.
func TestAPIDiff(t *testing.T) {
	old := apiOf(checked(t, "package p\nfunc F(n int) {}\nfunc G() {}"))
	now := apiOf(checked(t, "package p\nfunc F(n int64) {}\nfunc G() {}\nfunc H() {}"))
	require.Equal(t, "- func F(n int)\n+ func F(n int64)\n+ func H()", lineDiff(old, now))
	require.Empty(t, lineDiff(old, old))
}

func checked(t *testing.T, src string) *types.Package {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", src, 0)
	require.NoError(t, err)
	pkg, err := new(types.Config).Check("p", fset, []*ast.File{f}, nil)
	require.NoError(t, err)
	return pkg
}
