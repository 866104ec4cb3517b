package protocol

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/xds/nds"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func showResource(t resource.Type, url string, r *discoveryv3.Resource) string {
	if t == resource.NameTable {
		return showTable(r)
	}
	if r.Resource == nil {
		return fmt.Sprint(r.Aliases, " absent")
	}
	m, err := r.Resource.UnmarshalNew()
	switch {
	case err != nil:
		return err.Error()
	case r.Resource.TypeUrl != t.URL() || url != t.URL():
		return "WRONG TYPE " + r.Resource.TypeUrl
	case r.Version == "" || r.Ttl != nil:
		return "NO VERSION"
	}
	text := show(m)
	if v, ok := m.(*routev3.VirtualHost); ok && v.Name != r.Name {
		return "NAMED " + v.Name
	}
	if r.Name != "" && !strings.HasPrefix(text, r.Name) {
		return "WRONG NAME " + r.Name
	}
	return text
}

// showTable shows a name table: a table of one name as name=mark, and a table without a name of its own as {name=mark ...}.
func showTable(r *discoveryv3.Resource) string {
	if r.Resource.TypeUrl != nds.URL {
		return "WRONG TYPE " + r.Resource.TypeUrl
	}
	var list []string
	if err := nds.Decode(r.Resource.Value, func(e nds.Entry) { list = append(list, e.Host+"="+strings.Join(e.Addresses, ",")) }); err != nil {
		return err.Error()
	}
	if len(list) == 1 && r.Name != "" {
		return list[0]
	}
	return "{" + strings.Join(list, " ") + "}"
}
