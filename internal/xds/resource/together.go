package resource

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// PieceChange is a virtual host that differs between two route configurations.
type PieceChange = omap.Change[omap.Name, *Piece]

// Together returns the changes that must wait, and the changes that must be made at the same time. A domain must be in exactly one
// virtual host of a route configuration at all times, so changes that move a domain belong together. Removals wait, too:
// the requests of a removed virtual host may be meant for one that waits.
func Together(diff []PieceChange, waits func(PieceChange) bool) []PieceChange {
	domains := map[string]bool{}
	held := make([]bool, len(diff))
	for grown := true; grown; {
		grown = false
		for i, pc := range diff {
			if held[i] {
				continue
			}
			all := slices.Concat(pc.Old.Domains(), pc.New.Domains())
			if waits(pc) || !pc.HasNew || slices.ContainsFunc(all, func(d string) bool { return domains[d] }) {
				held[i], grown = true, true
				for _, d := range all {
					domains[d] = true
				}
			}
		}
	}
	var list []PieceChange
	for i, pc := range diff {
		if held[i] {
			list = append(list, pc)
		}
	}
	return list
}
