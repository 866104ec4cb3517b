package loop

import (
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestUnacknowledgedIsAProblemOfItsObjects checks that the objects from which unacknowledged resources were made have one problem until
// all proxies acknowledge the resources or leave.
func TestUnacknowledgedIsAProblemOfItsObjects(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	a, s := f.attach(web0, "")
	b, _ := f.attach(web0, "")
	name := "outbound|80||reviews.example.com"
	s.wait(t, "the cluster", has(resource.Cluster, name))
	hasProblem := func(text string) func(v *View) bool {
		return func(v *View) bool {
			n := 0
			for _, p := range v.Problems.All() {
				if p.Object.Kind == "ServiceEntry" && p.Object.Name == "reviews" && strings.Contains(p.Reason, text) {
					n++
				}
			}
			return n == 1
		}
	}
	late := []protocol.Unacknowledged{{Type: resource.Cluster, Names: []string{name}, Since: time.Unix(1, 0)}}
	a.NoteUnacknowledged(late)
	f.eventually("a problem that names the proxy", hasProblem("proxy "+web0+" was sent CDS"))
	b.NoteUnacknowledged(late)
	f.eventually("one problem of both", hasProblem(" and another one was sent CDS"))
	a.NoteUnacknowledged(nil)
	f.eventually("a problem of the other", hasProblem("proxy "+web0+" was sent CDS"))
	b.Close()
	f.eventually("nothing", func(v *View) bool { return !hasProblem("was sent CDS")(v) && v.Tables.Unacknowledged.Len() == 0 })
}
