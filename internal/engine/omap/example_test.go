package omap_test

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// port is a value: it has a content hash and a size.
type port int

func (p port) ContentHash() omap.Hash { return omap.Sum(fmt.Append(nil, int(p))) }
func (p port) Size() int              { return 4 }

func Example() {
	// Maps are immutable: With returns a new map and leaves the old one as it is.
	before := omap.With(omap.Map[omap.Name, port]{},
		omap.Put(omap.Name("reviews"), port(9080)),
		omap.Put(omap.Name("details"), port(9080)),
		omap.Put(omap.Name("ratings"), port(9080)),
	)
	after := omap.With(before,
		omap.Put(omap.Name("reviews"), port(9090)), // another value
		omap.Put(omap.Name("details"), port(9080)), // an equal value: no change
		omap.Del[omap.Name, port]("ratings"),
	)
	for name, p := range after.All() {
		fmt.Println(name, p)
	}

	// Diff lists what changed, in key order.
	for c := range omap.Diff(before, after) {
		switch {
		case !c.HasNew:
			fmt.Println("deleted", c.Key)
		case !c.HadOld:
			fmt.Println("added", c.Key)
		default:
			fmt.Println("changed", c.Key, c.Old, "->", c.New)
		}
	}

	// Equal content has an equal hash, whatever the order of the writes was.
	other := omap.With(omap.With(omap.Map[omap.Name, port]{}, omap.Put(omap.Name("reviews"), port(9090))), omap.Put(omap.Name("details"), port(9080)))
	fmt.Println(other.Hash() == after.Hash())

	// Output:
	// details 9080
	// reviews 9090
	// deleted ratings
	// changed reviews 9080 -> 9090
	// true
}
