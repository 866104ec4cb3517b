package resource

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/omap"
)

// PieceChange is a virtual host that is not the same in two route configurations.
type PieceChange = omap.Change[omap.Name, *Piece]

// Together are the changes that wait, and those of virtual hosts that change together with them: a domain may be in one virtual host only,
// and must be in one all the time. What is to go waits, too: it may have been for what is to come.
func Together(diff []PieceChange, waits func(PieceChange) bool) []PieceChange {
	domains := map[string]bool{}
	back := make([]bool, len(diff))
	for grown := true; grown; {
		grown = false
		for i, pc := range diff {
			if back[i] {
				continue
			}
			all := slices.Concat(pc.Old.Domains(), pc.New.Domains())
			if waits(pc) || !pc.HasNew || slices.ContainsFunc(all, func(d string) bool { return domains[d] }) {
				back[i], grown = true, true
				for _, d := range all {
					domains[d] = true
				}
			}
		}
	}
	var list []PieceChange
	for i, pc := range diff {
		if back[i] {
			list = append(list, pc)
		}
	}
	return list
}
