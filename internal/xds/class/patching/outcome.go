package patching

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// take takes over the result of patches.
func take[M proto.Message](o *outcome, t resource.Type, result patch.Result[M]) {
	o.patches = result.Outcomes
	switch {
	case result.Removed:
		o.resource = resource.Hide(o.name)
	case result.Changed:
		o.resource = resource.New(t, o.name, result.Message)
	}
}

// outcome is a patched resource, with what became of patches in it.
type outcome struct {
	name string
	// resource is the patched resource; nil if no patch changed it.
	resource *resource.Resource
	patches  []patch.Outcome
}

// any reports whether there is something to report.
func (o *outcome) any() bool { return o.resource != nil || len(o.patches) > 0 }

// OutputName implements query.Output.
func (o *outcome) OutputName() string { return o.name }

// Size implements omap.Value.
func (o *outcome) Size() int { return 0 }

// ContentHash implements omap.Value.
func (o *outcome) ContentHash() omap.Hash {
	var b []byte
	if o.resource != nil {
		h := o.resource.ContentHash()
		b = append(b, h[:]...)
	}
	o.each(func(e Effect, _ omap.Name) { b = append(e.AppendTo(b), 0) })
	return omap.Sum(b)
}

// each yields the effects of patches on the resource.
func (o *outcome) each(add func(Effect, omap.Name)) {
	for _, p := range o.patches {
		add(Effect{p.Patch, p.Failure, p.Denied}, omap.Name(o.name))
	}
}

// Effect is what became of a patch: it was applied, or it was left out because of a failure.
type Effect struct {
	patch   patch.Ref
	failure string
	denied  bool
}

// Compare orders by patch, then by failure.
func (e Effect) Compare(o Effect) int {
	denied := 0
	if e.denied != o.denied {
		denied = 1
		if o.denied {
			denied = -1
		}
	}
	return cmp.Or(e.patch.Compare(o.patch), strings.Compare(e.failure, o.failure), denied)
}

// AppendTo appends an unambiguous form.
func (e Effect) AppendTo(b []byte) []byte {
	b = e.patch.AppendTo(b)
	if e.denied {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return append(b, e.failure...)
}
