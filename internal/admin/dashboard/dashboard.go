// Package dashboard makes the dashboard for Grafana that comes with Pilot: the requests and connections of a mesh, and the control plane.
//
// Rows is the table of its panels, from which JSON makes manifests/dashboards/pilot.json. The package is pure and starts no goroutines.
package dashboard

import (
	"encoding/json"
	"strings"
)

// Row is a group of panels under a title.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is one chart.
type Panel struct {
	// Title and About describe it.
	Title, About string
	// Unit is a unit of Grafana: reqps, percentunit, ms, s, Bps, bytes, short.
	Unit string
	// Query is in the language of Prometheus. It may have the variables of Variables, and Legend the labels of its series.
	Query, Legend string
}

// Interval is the variable of Grafana with the range over which rates are computed.
const Interval = "$__rate_interval"

// Variables are the variables of the dashboard that queries use, with a value that chooses everything.
func Variables() map[string]string {
	return map[string]string{"$reporter": "destination", "$namespace": ".*"}
}

// served chooses the requests or connections of the chosen namespaces, as the chosen side reports them.
const served = `reporter="$reporter", destination_workload_namespace=~"$namespace"`

// Legends of panels that have a line for each workload, or for each pair of workloads.
const (
	byWorkload = "{{destination_workload_namespace}}/{{destination_workload}}"
	byEdge     = "{{source_workload_namespace}}/{{source_workload}} → " + byWorkload
)

// rate is the rate of a counter with some labels, summed up by other labels.
func rate(name, labels string, by ...string) string {
	return "sum by (" + strings.Join(by, ", ") + ") (rate(" + name + "{" + labels + "}[" + Interval + "]))"
}

// quantile is a quantile of a histogram with some labels, by other labels.
func quantile(q, name, labels string, by ...string) string {
	return "histogram_quantile(" + q + ", " + rate(name+"_bucket", labels, append(by, "le")...) + ")"
}

// plane is a metric that every Go program has, of the control plane only.
func plane(query string) string { return query + " and on (instance, job) pilot_info" }

// Rows returns the panels in their order.
func Rows() []Row {
	return []Row{{"Requests", requests()}, {"Connections", connections()}, {"Control plane", controlPlane()}}
}

func requests() []Panel {
	workload := []string{"destination_workload_namespace", "destination_workload"}
	edge := append([]string{"source_workload_namespace", "source_workload"}, workload...)
	const count, duration = "istio_requests_total", "istio_request_duration_milliseconds"
	return []Panel{
		{"Requests", "Requests per second that workloads serve.", "reqps", rate(count, served, workload...), byWorkload},
		{"Errors", "The share of requests with a status from 500 up.", "percentunit",
			rate(count, served+`, response_code=~"5.."`, workload...) + " / " + rate(count, served, workload...), byWorkload},
		{"Latency, median", "Half of the requests take no longer.", "ms", quantile("0.5", duration, served, workload...), byWorkload},
		{"Latency, 99 %", "Only one in a hundred requests takes longer.", "ms", quantile("0.99", duration, served, workload...), byWorkload},
		{"Who calls whom", "Requests per second between workloads. A client without mutual TLS is unknown.", "reqps", rate(count, served, edge...), byEdge},
		{"gRPC", "Calls per second by the status of gRPC; 0 is OK.", "reqps", rate(count, served+`, request_protocol="grpc"`, "grpc_response_status"), "{{grpc_response_status}}"},
		{"Failures that Envoy made", "Requests per second that clients' proxies answered themselves, or that broke, by Envoy's flag.", "reqps",
			rate(count, `reporter="source", response_flags!="-"`, "response_flags", "destination_service"), "{{response_flags}} {{destination_service}}"},
		{"Without mutual TLS", "Requests per second that workloads took in plain text.", "reqps",
			rate(count, `reporter="destination", connection_security_policy!="mutual_tls", destination_workload_namespace=~"$namespace"`, workload...), byWorkload},
		{"Size of responses, 99 %", "Only one in a hundred responses is larger.", "bytes", quantile("0.99", "istio_response_bytes", served, workload...), byWorkload},
	}
}

func connections() []Panel {
	workload := []string{"destination_workload_namespace", "destination_workload"}
	return []Panel{
		{"Opened connections", "Connections over TCP per second.", "cps", rate("istio_tcp_connections_opened_total", served, workload...), byWorkload},
		{"Sent", "Bytes per second to clients, counted when a connection ends.", "Bps", rate("istio_tcp_sent_bytes_total", served, workload...), byWorkload},
		{"Received", "Bytes per second from clients, counted when a connection ends.", "Bps", rate("istio_tcp_received_bytes_total", served, workload...), byWorkload},
	}
}

func controlPlane() []Panel {
	return []Panel{
		{"Proxies", "Connected proxies.", "short", "sum(pilot_xds)", "proxies"},
		{"Time until proxies have a change, 99 %", "From the publication of a state to its acknowledgement.", "s", quantile("0.99", "pilot_proxy_convergence_time", ""), "99 %"},
		{"Time of a commit, 99 %", "Until all streams have the new states.", "s", quantile("0.99", "pilot_commit_duration_seconds", ""), "99 %"},
		{"Commits", "Commits per second that changed something.", "cps", "sum(rate(pilot_commits_total[" + Interval + "]))", "commits"},
		{"Responses", "Responses per second to proxies, by type.", "cps", rate("pilot_xds_pushes", "", "type"), "{{type}}"},
		{"Rejections", "Responses per second that proxies rejected, by type. Problems say why.", "cps", rate("pilot_total_xds_rejects", "", "type"), "{{type}}"},
		{"Problems", "Problems that exist, by level: pilotctl problems lists them.", "short", "sum by (level) (pilot_problems)", "{{level}}"},
		{"Faults", "Parts of the configuration that failed to be computed; more than 0 is a bug.", "short", "sum(pilot_cell_faults)", "faults"},
		{"Memory", "Resident memory of the control plane.", "bytes", plane("process_resident_memory_bytes"), "{{instance}}"},
		{"Processor", "Processors that the control plane uses.", "short", plane("rate(process_cpu_seconds_total[" + Interval + "])"), "{{instance}}"},
		{"Root certificate", "Seconds until the certificate of the authority expires.", "s", "min(citadel_server_root_cert_expiry_seconds)", "root"},
	}
}

// The parts of a dashboard of Grafana that are not the same everywhere.
type (
	grafana struct {
		UID           string         `json:"uid"`
		Title         string         `json:"title"`
		Description   string         `json:"description"`
		Tags          []string       `json:"tags"`
		SchemaVersion int            `json:"schemaVersion"`
		Refresh       string         `json:"refresh"`
		Time          map[string]any `json:"time"`
		Templating    map[string]any `json:"templating"`
		Panels        []chart        `json:"panels"`
	}
	chart struct {
		ID          int            `json:"id"`
		Type        string         `json:"type"`
		Title       string         `json:"title"`
		Description string         `json:"description,omitempty"`
		GridPos     position       `json:"gridPos"`
		Datasource  map[string]any `json:"datasource,omitempty"`
		FieldConfig map[string]any `json:"fieldConfig,omitempty"`
		Targets     []target       `json:"targets,omitempty"`
	}
	position struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	target struct {
		RefID  string `json:"refId"`
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	}
)

// The size of a panel, in the grid of Grafana, which is 24 wide.
const width, height, columns = 8, 8, 3

// JSON returns the dashboard for Grafana.
func JSON() ([]byte, error) {
	g := grafana{
		UID: "pilot", Title: "Pilot", Description: "The requests and connections of the mesh, and the control plane. Made from internal/admin/dashboard.",
		Tags: []string{"pilot", "mesh"}, SchemaVersion: 39, Refresh: "30s",
		Time: map[string]any{"from": "now-1h", "to": "now"}, Templating: map[string]any{"list": variables()},
	}
	y := 0
	add := func(c chart) {
		c.ID = len(g.Panels) + 1
		g.Panels = append(g.Panels, c)
	}
	for _, row := range Rows() {
		add(chart{Type: "row", Title: row.Title, GridPos: position{1, 24, 0, y}})
		y++
		for i, p := range row.Panels {
			add(chart{
				Type: "timeseries", Title: p.Title, Description: p.About, GridPos: position{height, width, i % columns * width, y + i/columns*height},
				Datasource:  source(),
				FieldConfig: map[string]any{"defaults": map[string]any{"unit": p.Unit, "min": 0}, "overrides": []any{}},
				Targets:     []target{{"A", p.Query, p.Legend}},
			})
		}
		y += (len(row.Panels) + columns - 1) / columns * height
	}
	text, err := json.MarshalIndent(g, "", "  ")
	return append(text, '\n'), err
}

func source() map[string]any { return map[string]any{"type": "prometheus", "uid": "${datasource}"} }

// variables are the choices above the panels.
func variables() []any {
	return []any{
		map[string]any{"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"},
		map[string]any{
			"name": "reporter", "label": "Reported by", "type": "custom", "query": "destination,source",
			"current": map[string]any{"text": "destination", "value": "destination"},
		},
		map[string]any{
			"name": "namespace", "label": "Namespace", "type": "query", "datasource": source(), "refresh": 2, "includeAll": true, "allValue": ".*", "multi": true,
			"query":   "label_values(istio_requests_total, destination_workload_namespace)",
			"current": map[string]any{"text": "All", "value": "$__all"},
		},
	}
}
