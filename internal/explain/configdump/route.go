package configdump

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// route is a row about a route of a virtual host.
type route struct{ host, domains, match, destination, object string }

// routes returns a row for each route of a route configuration. A virtual host without routes has a row too.
func routes(body map[string]any) (list []route) {
	for _, host := range objects(body["virtual_hosts"]) {
		row := route{host: text(host, "name"), domains: some(words(host["domains"]))}
		all := objects(host["routes"])
		for _, r := range all {
			row.match, row.destination, row.object = requestMatch(object(r["match"])), routeDestination(r), rule(r, "virtual-service")
			list = append(list, row)
		}
		if len(all) == 0 {
			row.match, row.destination, row.object = "none", "", ""
			list = append(list, row)
		}
	}
	return list
}

// requestMatch says which requests a route takes.
func requestMatch(m map[string]any) string {
	var parts []string
	for _, field := range []string{"path", "prefix", "path_separated_prefix"} {
		if s := text(m, field); s != "" {
			parts = append(parts, map[string]string{"path": s, "prefix": s + "*", "path_separated_prefix": s + "[/*]"}[field])
		}
	}
	if regex := text(object(m["safe_regex"]), "regex"); regex != "" {
		parts = append(parts, "regex "+regex)
	}
	for _, h := range objects(m["headers"]) {
		parts = append(parts, "header "+text(h, "name"))
	}
	for _, q := range objects(m["query_parameters"]) {
		parts = append(parts, "parameter "+text(q, "name"))
	}
	return strings.Join(parts, ", ")
}

// routeDestination says what becomes of the requests of a route.
func routeDestination(r map[string]any) string {
	switch to := object(r["route"]); {
	case object(r["direct_response"]) != nil:
		return "Response: " + number(object(r["direct_response"]), "status")
	case object(r["redirect"]) != nil:
		return "Redirect"
	case text(to, "cluster") != "":
		return text(to, "cluster")
	case object(to["weighted_clusters"]) != nil:
		return weights(objects(at(to, "weighted_clusters")["clusters"]))
	case text(to, "cluster_header") != "":
		return "Cluster of the header " + text(to, "cluster_header")
	}
	return ""
}

func weights(list []map[string]any) string {
	shown := make([]string, 0, len(list))
	for _, one := range list {
		shown = append(shown, fmt.Sprintf("%s (%s)", text(one, "name"), cmp.Or(number(one, "weight"), "0")))
	}
	slices.Sort(shown)
	return strings.Join(shown, ", ")
}
