package reply

import (
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/explain/access"
)

// Destination is where requests to a port of a host go.
type Destination struct {
	// Requests says which requests match, and Percent is the share of them that goes to the cluster.
	Requests string  `json:"requests"`
	Percent  float64 `json:"percent"`
	// Cluster is empty if the proxy responds itself; Response says how.
	Cluster  string `json:"cluster,omitempty"`
	Response string `json:"response,omitempty"`
	// Fails says why requests fail before any endpoint is chosen; empty if they do not.
	Fails string `json:"fails,omitempty"`
	// Healthy is how many of the endpoints are healthy, and Unconnected are addresses of some without a connected proxy, Missing the
	// number of all of these.
	Endpoints   int      `json:"endpoints"`
	Healthy     int      `json:"healthy"`
	Missing     int      `json:"without_proxy,omitempty"`
	Unconnected []string `json:"without_proxy_examples,omitempty"`
	// Transport says how the proxy connects.
	Transport string `json:"transport,omitempty"`
	// Access says whether the endpoints allow the request Asked from the proxy's workload; empty if that is not known.
	Access access.Verdict `json:"access,omitempty"`
	Asked  string         `json:"asked,omitempty"`

	// Addresses are the ones of the endpoints.
	Addresses map[string]bool `json:"-"`
}

// judgeDestinations finds out which destinations of a port allow a request.
func (p *Port) judgeDestinations() {
	if p.Judge == nil {
		return
	}
	asked, verdicts := p.Judge()
	for n := range p.Destinations {
		d := &p.Destinations[n]
		for address := range d.Addresses {
			switch v, judged := verdicts[address]; {
			case !judged:
			case d.Access == "":
				d.Access, d.Asked = v, asked
			case d.Access != v:
				d.Access = Mixed
			}
		}
	}
	p.Judge = nil
}

// text describes the destination in a line.
func (d Destination) text() string {
	if d.Response != "" {
		return fmt.Sprintf("%s: the proxy responds with %s", d.Requests, d.Response)
	}
	if d.Fails != "" {
		return fmt.Sprintf("%s: %g %% to %s (%s)", d.Requests, d.Percent, d.Cluster, d.Fails)
	}
	parts := []string{fmt.Sprintf("%d of %d endpoints healthy", d.Healthy, d.Endpoints)}
	if d.Transport != "" {
		parts = append(parts, d.Transport)
	}
	if d.Access != "" {
		parts = append(parts, fmt.Sprintf("%s: %s", d.Asked, d.Access))
	}
	return fmt.Sprintf("%s: %g %% to %s (%s)", d.Requests, d.Percent, d.Cluster, strings.Join(parts, "; "))
}

// String describes the destination in a line.
func (d Destination) String() string { return d.text() }

// note says which endpoints have no connected proxy; empty if all have one.
func (d Destination) note() string {
	if d.Missing == 0 {
		return ""
	}
	list := strings.Join(d.Unconnected, ", ")
	if d.Missing > len(d.Unconnected) {
		list += ", ..."
	}
	return fmt.Sprintf("no proxy connected at %d of %d (%s)", d.Missing, d.Endpoints, list)
}
