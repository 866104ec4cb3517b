package reject

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// PinsOf returns pins with the given keys. Their held content is unknown.
func PinsOf(keys []Key) []Pin {
	pins := make([]Pin, len(keys))
	for i, k := range keys {
		pins[i] = Pin{Type: k.Type, Name: k.Name, Piece: k.Piece, Rejected: k.Rejected}
	}
	return pins
}

// Distinct reports whether the reason identifies the pins. It does not if they are virtual hosts of several route
// configurations, because these may have the same name.
func Distinct(pins []Pin) bool {
	return !slices.ContainsFunc(pins, func(p Pin) bool { return p.Type == resource.Route && p.Name != pins[0].Name })
}

// Head returns the pin of the head of a split route configuration, whatever its virtual hosts are. old is the route configuration before the
// change; nil if the client had none.
func Head(old, changed *resource.Resource) Pin {
	return Pin{Type: resource.Route, Name: changed.Name(), Rejected: changed.HeadHash(), Held: old}
}

// ChangedContent lists the content of a changed resource that may be bad: the changed pieces of a route configuration, preferably the
// pieces that the reason mentions, else the whole resource. old is the resource before the change; nil if the client had none.
func ChangedContent(t resource.Type, old, changed *resource.Resource, reason Words) []Pin {
	whole := Pin{Type: t, Name: changed.Name(), Rejected: changed.ContentHash(), Held: old}
	if changed.Pieces().Len() == 0 || old != nil && !old.SameHeader(changed) {
		return []Pin{whole}
	}
	var before omap.Map[omap.Name, *resource.Piece]
	if old != nil {
		before = old.Pieces()
	}
	var all, mentioned []Pin
	for ch := range omap.Diff(before, changed.Pieces()) {
		if !ch.HasNew {
			continue
		}
		p := Pin{
			Type: t, Name: changed.Name(), Piece: string(ch.Key), Rejected: ch.New.ContentHash(), HeldPiece: ch.Old,
			refs: ch.New.Refs(),
		}
		all = append(all, p)
		if p.MentionedIn(reason, changed) {
			mentioned = append(mentioned, p)
		}
	}
	switch {
	case len(mentioned) > 0:
		return mentioned
	case len(all) == 0 || len(all) > MaxPins/2:
		return []Pin{whole}
	}
	return all
}

// MentionedIn reports whether the reason of a NACK mentions what the pin holds back: the resource, the piece, or a cluster
// that the piece routes to. For a whole route configuration any of its pieces is enough.
func (p *Pin) MentionedIn(reason Words, r *resource.Resource) bool {
	if p.Piece != "" {
		return reason[p.Piece] || reason[resource.HostName(p.Name, p.Piece)] || reason.hasAny(p.refs)
	}
	if reason[p.Name] {
		return true
	}
	for name, piece := range r.Pieces().All() {
		if reason[string(name)] || reason.hasAny(piece.Refs()) {
			return true
		}
	}
	return false
}

// Words holds the words of a reason.
type Words map[string]bool

func (w Words) hasAny(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return w[n] })
}

// WordsOf splits a reason into words that may be names of resources. Names contain neither blanks nor quotes. The text of a
// NACK may put a full stop or a colon behind a name.
func WordsOf(reason string) Words {
	words := Words{}
	for _, w := range strings.FieldsFunc(reason, func(r rune) bool { return strings.ContainsRune(" \t\r\n'\"`,;()[]{}<>=", r) }) {
		words[w] = true
		words[strings.TrimRight(w, ".:!")] = true
	}
	return words
}
