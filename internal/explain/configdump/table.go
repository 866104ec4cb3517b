package configdump

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes a table of resources, with the columns of istioctl.
func WriteTable(w io.Writer, k Kind, list []Entry, f Filter) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(cells ...string) {
		for i := range cells {
			cells[i] = cmp.Or(cells[i], "-")
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	row(heads(k)...)
	for _, e := range list {
		switch k {
		case Clusters:
			n := parseName(e.Name)
			row(n.host, n.port, n.subset, n.direction, clusterType(e.Body), rule(e.Body, "destination-rule"), shownState(e))
		case Listeners:
			for _, c := range chains(e.Body) {
				row(hosts(e.Body), port(e.Body), c.match, c.destination, shownState(e))
			}
		case Routes:
			for _, r := range routes(e.Body) {
				row(e.Name, r.host, r.domains, r.match, r.destination, r.object)
			}
		case Endpoints:
			for _, n := range f.endpointsOf(e) {
				row(n.address.String(), n.status, n.weight, n.locality, e.Name)
			}
		}
	}
	return t.Flush()
}

func heads(k Kind) []string {
	switch k {
	case Clusters:
		return []string{"SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE", "STATE"}
	case Listeners:
		return []string{"ADDRESSES", "PORT", "MATCH", "DESTINATION", "STATE"}
	case Routes:
		return []string{"NAME", "VHOST NAME", "DOMAINS", "MATCH", "DESTINATION", "VIRTUAL SERVICE"}
	case Endpoints:
		return []string{"ENDPOINT", "STATUS", "WEIGHT", "LOCALITY", "CLUSTER"}
	}
	return nil
}

func shownState(e Entry) string {
	if e.Static && e.State == active {
		return "static"
	}
	return e.State
}

// clusterType is how a cluster finds its endpoints.
func clusterType(body map[string]any) string {
	if own := text(object(body["cluster_type"]), "name"); own != "" {
		return own[strings.LastIndexByte(own, '.')+1:]
	}
	return cmp.Or(text(body, "type"), "STATIC")
}

// rule is the object in the metadata of a resource, as NAME.NAMESPACE; empty if it is of another kind.
func rule(body map[string]any, kind string) string {
	path := strings.Split(text(at(body, "metadata", "filter_metadata", "istio"), "config"), "/")
	// /apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME
	if len(path) != 8 || path[6] != kind {
		return ""
	}
	return path[7] + "." + path[5]
}

func hosts(body map[string]any) string {
	var list []string
	for _, a := range listenerAddresses(body) {
		list = append(list, a.host)
	}
	return strings.Join(list, ",")
}

func port(body map[string]any) string {
	for _, a := range listenerAddresses(body) {
		return a.port
	}
	return ""
}

// chain is a filter chain of a listener.
type chain struct{ match, destination string }

func chains(body map[string]any) (list []chain) {
	for _, c := range objects(body["filter_chains"]) {
		list = append(list, chain{chainMatch(object(c["filter_chain_match"])), chainDestination(c)})
	}
	if c := object(body["default_filter_chain"]); c != nil {
		list = append(list, chain{"ALL", chainDestination(c)})
	}
	if len(list) == 0 {
		list = append(list, chain{"ALL", "no filter chain"})
	}
	return list
}

// chainMatch says which connections a filter chain takes.
func chainMatch(m map[string]any) string {
	var parts []string
	if names := words(m["server_names"]); len(names) > 0 {
		parts = append(parts, "SNI: "+some(names))
	}
	if t := text(m, "transport_protocol"); t != "" {
		parts = append(parts, "Trans: "+t)
	}
	if protocols := words(m["application_protocols"]); len(protocols) > 0 {
		parts = append(parts, "App: "+some(protocols))
	}
	var ranges []string
	for _, r := range objects(m["prefix_ranges"]) {
		ranges = append(ranges, text(r, "address_prefix")+"/"+cmp.Or(number(r, "prefix_len"), "0"))
	}
	switch p := number(m, "destination_port"); {
	case p != "" && len(ranges) == 0:
		parts = append(parts, "Addr: *:"+p)
	case p != "":
		parts = append(parts, "Addr: "+some(ranges)+":"+p)
	case len(ranges) > 0:
		parts = append(parts, "Addr: "+some(ranges))
	}
	return cmp.Or(strings.Join(parts, "; "), "ALL")
}

// chainDestination says where the last filter of a chain leads.
func chainDestination(c map[string]any) string {
	last := ""
	for _, f := range objects(c["filters"]) {
		config := object(f["typed_config"])
		switch name := text(f, "name"); {
		case object(config["rds"]) != nil:
			return "Route: " + text(object(config["rds"]), "route_config_name")
		case object(config["route_config"]) != nil:
			return "Inline route: " + some(clustersOf(config["route_config"]))
		case text(config, "cluster") != "":
			return "Cluster: " + text(config, "cluster")
		case object(config["weighted_clusters"]) != nil:
			return "Cluster: " + some(clustersOf(config["weighted_clusters"]))
		default:
			last = name
		}
	}
	return "Filter: " + cmp.Or(last, "none")
}

// clustersOf returns the clusters that a value names, each once.
func clustersOf(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		if name := text(v, "cluster"); name != "" {
			names = append(names, name)
		}
		if weighted := objects(v["clusters"]); weighted != nil {
			for _, one := range weighted {
				names = append(names, text(one, "name"))
			}
		}
		for _, field := range []string{"virtual_hosts", "routes", "route", "weighted_clusters"} {
			names = append(names, clustersOf(v[field])...)
		}
	case []any:
		for _, one := range v {
			names = append(names, clustersOf(one)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// words returns the strings of a list.
func words(v any) (list []string) {
	all, _ := v.([]any)
	for _, one := range all {
		if s, ok := one.(string); ok {
			list = append(list, s)
		}
	}
	return list
}

// some returns the first words of a list, and how many more there are.
func some(list []string) string {
	const enough = 2
	if len(list) <= enough {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s + %d more", strings.Join(list[:enough], ", "), len(list)-enough)
}

// WriteSecrets writes a table of secrets. now is the present time.
func WriteSecrets(w io.Writer, list []Secret, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "RESOURCE NAME\tTYPE\tSTATUS\tVALID CERT\tSERIAL NUMBER\tNOT AFTER\tNOT BEFORE")
	for _, s := range list {
		if len(s.Certificates) == 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t-\t%s\t-\t-\n", s.Name, s.Type, strings.ToUpper(s.State), cmp.Or(s.Remark, "-"))
		}
		for _, c := range s.Certificates {
			valid := !now.Before(c.NotBefore) && now.Before(c.NotAfter)
			fmt.Fprintf(t, "%s\t%s\t%s\t%t\t%s\t%s\t%s\n", s.Name, s.Type, strings.ToUpper(s.State), valid, c.Serial, c.NotAfter.Format(time.RFC3339), c.NotBefore.Format(time.RFC3339))
		}
	}
	return t.Flush()
}
