package page_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/explain/page"
)

// TestPage: columns are as wide as their section needs, and no line ends with spaces.
func TestPage(t *testing.T) {
	var b strings.Builder
	p := page.New(&b)
	p.Line("%s\t%d", "long name", 1)
	p.Cells("a", "2", "", "")
	p.Heading("next")
	p.Line("b\t%d", 3)
	if err := p.Done(); err != nil {
		t.Fatal(err)
	}
	if want := "long name  1\na          2\n\nnext\nb  3\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// full is a writer that has no space.
type full struct{ writes int }

func (f *full) Write([]byte) (int, error) {
	f.writes++
	return 0, errors.New("no space")
}

// TestErrors: the first error is returned, and nothing is written after it.
func TestErrors(t *testing.T) {
	var f full
	p := page.New(&f)
	p.Line("a")
	p.Heading("b")
	before := f.writes
	p.Line("c")
	p.Cells("d")
	p.Heading("e")
	if err := p.Done(); err == nil || f.writes != before {
		t.Errorf("error %v, %d writes after it", err, f.writes-before)
	}
}
