package configdump

import (
	"net"
	"slices"
	"strings"
)

// Filter selects resources. An empty field selects all.
type Filter struct {
	// Name is the name of the resource.
	Name string
	// Host, Port, Subset and Direction are of the name of a cluster, such as outbound|80|v1|HOST. Port is also of the address of a listener or endpoint.
	Host, Port, Subset, Direction string
	// Address is of a listener or endpoint, Status of an endpoint.
	Address, Status string
}

func (f Filter) selects(k Kind, e Entry) bool {
	if f.Name != "" && f.Name != e.Name {
		return false
	}
	switch k {
	case Clusters:
		return f.cluster(parseName(e.Name))
	case Listeners:
		return f.listener(e)
	case Routes:
		return true
	case Endpoints:
		n := parseName(e.Name)
		named := f
		named.Port = ""
		return named.cluster(n) && len(f.endpointsOf(e)) > 0
	}
	return true
}

// clusterName is the parsed name of a cluster.
type clusterName struct{ direction, port, subset, host string }

// parseName parses the name of a cluster. The host of a name of another form is the name itself.
func parseName(name string) clusterName {
	for _, separator := range []string{"|", "_."} {
		if p := strings.SplitN(name, separator, 4); len(p) == 4 {
			return clusterName{p[0], p[1], p[2], p[3]}
		}
	}
	return clusterName{host: name}
}

func (f Filter) cluster(n clusterName) bool {
	return (f.Host == "" || f.Host == n.host || strings.HasPrefix(n.host, f.Host+".")) && (f.Port == "" || f.Port == n.port) &&
		(f.Subset == "" || f.Subset == n.subset) && (f.Direction == "" || strings.EqualFold(f.Direction, n.direction))
}

func (f Filter) listener(e Entry) bool {
	addresses := listenerAddresses(e.Body)
	if len(addresses) == 0 {
		return f.Address == "" && f.Port == ""
	}
	return slices.ContainsFunc(addresses, func(a address) bool {
		return (f.Address == "" || f.Address == a.host) && (f.Port == "" || f.Port == a.port)
	})
}

// address is an IP address and port, or the path of a socket.
type address struct{ host, port string }

// String is the address as one text.
func (a address) String() string {
	if a.port == "" {
		return a.host
	}
	return net.JoinHostPort(a.host, a.port)
}

// readAddress reads an address of Envoy.
func readAddress(m map[string]any) (a address, ok bool) {
	if s := object(m["socket_address"]); s != nil {
		port := number(s, "port_value")
		if port == "" {
			port = "0"
		}
		return address{text(s, "address"), port}, true
	}
	if p := object(m["pipe"]); p != nil {
		return address{host: text(p, "path")}, true
	}
	if i := object(m["envoy_internal_address"]); i != nil {
		return address{host: text(i, "server_listener_name")}, true
	}
	return a, false
}

func listenerAddresses(body map[string]any) (list []address) {
	if a, ok := readAddress(object(body["address"])); ok {
		list = append(list, a)
	}
	for _, more := range objects(body["additional_addresses"]) {
		if a, ok := readAddress(object(more["address"])); ok {
			list = append(list, a)
		}
	}
	return list
}

// endpoint is an endpoint of a cluster.
type endpoint struct {
	address
	status, locality, weight, priority string
}

// endpointsOf returns the endpoints of an entry that the filter selects.
func (f Filter) endpointsOf(e Entry) (list []endpoint) {
	for _, group := range objects(e.Body["endpoints"]) {
		l := object(group["locality"])
		locality := strings.TrimRight(strings.Join([]string{text(l, "region"), text(l, "zone"), text(l, "sub_zone")}, "/"), "/")
		for _, one := range objects(group["lb_endpoints"]) {
			a, _ := readAddress(at(one, "endpoint", "address"))
			n := endpoint{a, text(one, "health_status"), locality, number(one, "load_balancing_weight"), number(group, "priority")}
			if n.status == "" || n.status == "UNKNOWN" {
				n.status = "HEALTHY" // Envoy sends requests to endpoints of unknown health
			}
			if n.weight == "" {
				n.weight = "1"
			}
			if (f.Address == "" || f.Address == a.host) && (f.Port == "" || f.Port == a.port) && (f.Status == "" || strings.EqualFold(f.Status, n.status)) {
				list = append(list, n)
			}
		}
	}
	return list
}
