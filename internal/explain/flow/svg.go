package flow

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	boxWidth, boxHeight = 190, 34
	columnGap, rowGap   = 210, 26
	margin              = 20
)

// place is the upper left corner of a workload's box.
type place struct{ x, y int }

// SVG writes the graph as a picture: clients to the left of their servers, and edges with errors in red.
func (a Answer) SVG(w io.Writer) error {
	places, width, height := a.places()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	b.WriteString(`<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>` + "\n")
	for _, e := range a.Edges {
		b.WriteString(line(e, places[e.From], places[e.To]))
	}
	all := make([]Workload, 0, len(places))
	for one := range places {
		all = append(all, one)
	}
	slices.SortFunc(all, Workload.Compare)
	for _, one := range all {
		at := places[one]
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#eef3fb" stroke="#4a6fa5"/><text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
			at.x, at.y, boxWidth, boxHeight, at.x+boxWidth/2, at.y+boxHeight/2+4, escaped(one.String()))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// line draws an edge with its traffic. An edge to the left, or within a column, leaves at the bottom, so that it does not cross the boxes.
func line(e EdgeFlow, from, to place) string {
	color := "#666"
	if e.Errors > 0 {
		color = "#c0392b"
	}
	x1, y1, x2, y2 := from.x+boxWidth, from.y+boxHeight/2, to.x, to.y+boxHeight/2
	bend := (x2 - x1) / 2
	if to.x <= from.x {
		x1, y1, x2, y2, bend = from.x+boxWidth/2, from.y+boxHeight, to.x+boxWidth/2, to.y+boxHeight, 0
	}
	path := fmt.Sprintf("M%d,%d C%d,%d %d,%d %d,%d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
	if bend == 0 {
		path = fmt.Sprintf("M%d,%d C%d,%d %d,%d %d,%d", x1, y1, x1, y1+rowGap, x2, y2+rowGap, x2, y2)
	}
	return fmt.Sprintf(`<path d="%s" fill="none" stroke="%s" marker-end="url(#end)"/><text x="%d" y="%d" text-anchor="middle" font-size="10" fill="%s">%s</text>`+"\n",
		path, color, (x1+2*x2)/3, (y1+3*y2)/4-5, color, escaped(e.Flow.line()))
}

// places puts each workload into the column behind its last client, or in front of a circle where the way to it began.
func (a Answer) places() (places map[Workload]place, width, height int) {
	column := map[Workload]int{}
	for _, e := range a.Edges {
		column[e.From], column[e.To] = 0, 0
	}
	// Each round moves servers behind their clients. A circle would move for ever, so there are at most as many rounds as workloads.
	for range len(column) {
		moved := false
		for _, e := range a.Edges {
			if next := column[e.From] + 1; e.From != e.To && column[e.To] < next && next < len(column) {
				column[e.To], moved = next, true
			}
		}
		if !moved {
			break
		}
	}
	columns := map[int][]Workload{}
	for one, at := range column {
		columns[at] = append(columns[at], one)
	}
	places = map[Workload]place{}
	for i, at := range slices.Sorted(maps.Keys(columns)) { // columns that circles left empty take no room
		for row, one := range a.ordered(columns[at], places) {
			places[one] = place{margin + i*(boxWidth+columnGap), margin + row*(boxHeight+rowGap)}
			width, height = max(width, places[one].x+boxWidth+margin), max(height, places[one].y+boxHeight+rowGap+margin)
		}
	}
	return places, max(width, 2*margin), max(height, 2*margin)
}

// ordered sorts the workloads of a column by the mean height of their clients that have a place, so that few edges cross, and then by name.
func (a Answer) ordered(column []Workload, places map[Workload]place) []Workload {
	sum, clients := map[Workload]int{}, map[Workload]int{}
	for _, e := range a.Edges {
		if at, ok := places[e.From]; ok {
			sum[e.To] += at.y
			clients[e.To]++
		}
	}
	mean := func(w Workload) int { return sum[w] / max(clients[w], 1) }
	slices.SortFunc(column, func(x, y Workload) int { return cmp.Or(mean(x)-mean(y), x.Compare(y)) })
	return column
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder returns no error
	return b.String()
}
