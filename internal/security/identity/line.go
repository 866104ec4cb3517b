package identity

import (
	"net/netip"
	"slices"
)

// Limits of waiting questions.
const (
	// maxWaiting is how many questions wait at most, and maxWaitingFrom how many of one address.
	maxWaiting     = 4096
	maxWaitingFrom = 512
)

// lines are waiting questions, with a line for each address. The addresses take turns, so a question waits only behind questions of its own
// address and one of each other address. The lock of the owner guards it.
type lines struct {
	of map[string]*line
	// order has the lines in the order of their turns.
	order []*line
	total int
}

// line are the questions of one address, the next one first.
type line struct {
	from string
	list []*answer
}

// Network returns the network that counts as one address: a host of IPv6 has at least 64 bits for itself.
func Network(from string) string {
	ip, err := netip.ParseAddr(from)
	if err != nil {
		return from
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	p, _ := ip.WithZone("").Prefix(64) // 64 is a length of IPv6
	return p.String()
}

// add adds a question. A token that was good before goes before unknown tokens of its address. If all places are taken, the last question of
// the longest line is dropped and returned as gone. ok is false if the question was not added.
func (l *lines) add(a *answer) (gone *answer, ok bool) {
	if l.of == nil {
		l.of = map[string]*line{}
	}
	own := l.of[a.from]
	count := 0
	if own != nil {
		count = len(own.list)
	}
	switch {
	case count >= maxWaitingFrom:
		if gone = own.last(); gone.known || !a.known {
			return nil, false
		}
		l.remove(gone)
	case l.total >= maxWaiting:
		longest := slices.MaxFunc(l.order, func(a, b *line) int { return len(a.list) - len(b.list) })
		if len(longest.list) <= count+1 {
			return nil, false
		}
		gone = longest.last()
		l.remove(gone)
	}
	if own = l.of[a.from]; own == nil {
		own = &line{from: a.from}
		l.of[a.from] = own
		l.order = append(l.order, own)
	}
	at := len(own.list)
	if a.known {
		if at = slices.IndexFunc(own.list, func(o *answer) bool { return !o.known }); at < 0 {
			at = len(own.list)
		}
	}
	own.list = slices.Insert(own.list, at, a)
	l.total++
	return gone, true
}

func (l *line) last() *answer { return l.list[len(l.list)-1] }

// next takes the question whose turn it is; nil if none waits.
func (l *lines) next() *answer {
	if len(l.order) == 0 {
		return nil
	}
	first := l.order[0]
	a := first.list[0]
	l.order = append(l.order[1:], first)
	l.remove(a)
	return a
}

// remove takes a question out.
func (l *lines) remove(a *answer) {
	own := l.of[a.from]
	if own == nil {
		return
	}
	at := slices.Index(own.list, a)
	if at < 0 {
		return
	}
	own.list = slices.Delete(own.list, at, at+1)
	l.total--
	if len(own.list) == 0 {
		delete(l.of, a.from)
		l.order = slices.DeleteFunc(l.order, func(o *line) bool { return o == own })
	}
}
