package admin

import (
	"fmt"
	"strings"
)

// istioMetric maps a metric of Istio's control plane to its counterpart here.
type istioMetric struct {
	// Name is the name of the metric in Istio.
	Name string
	// Ask is the metric to ask here; empty if there is none. It equals Name where the metric has the same name here.
	Ask string
	// Note describes the difference, or why there is no counterpart.
	Note string
}

// istioMetrics are the metrics of Istio's control plane that its dashboards and alerts ask for.
func istioMetrics() []istioMetric {
	same := func(name, note string) istioMetric { return istioMetric{name, name, note} }
	code := func(name, of string) istioMetric {
		return istioMetric{name, "pilot_problem_codes", "with the label code=\"" + of + "\": the problems name each object"}
	}
	none := func(name, note string) istioMetric { return istioMetric{name, "", note} }
	return append([]istioMetric{
		same("istio_build", ""), same("pilot_info", ""), same("istiod_uptime_seconds", ""),
		same("pilot_xds", "connected proxies; agents with streams of their own count, too"),
		same("pilot_xds_pushes", "the label type is cds, eds, lds or rds, and never cds_senderr: a response that cannot be written ends the stream (pilot_xds_closed_total)"),
		same("pilot_xds_push_time", "the time of writing only; the content was computed once for all proxies of a class (pilot_commit_duration_seconds)"),
		same("pilot_xds_send_time", ""), same("pilot_xds_config_size_bytes", ""),
		same("pilot_proxy_convergence_time", "until the proxy has acknowledged it, and not only until it is sent"),
		{"pilot_proxy_queue_time", "pilot_proxy_convergence_time", "there is no queue of proxies; waiting for a slow one is part of this time"},
		{"pilot_pushcontext_init_seconds", "pilot_commit_duration_seconds", "the work of one change"},
		{"pilot_debounce_time", "pilot_commit_duration_seconds", "nothing is delayed to be collected"},
		same("pilot_push_triggers", "service, endpoint, config, global and proxy"),
		same("pilot_inbound_updates", "config, eds, svc and svcdelete"),
		same("pilot_k8s_cfg_events", "objects of configuration from all sources, files, too"),
		same("pilot_k8s_reg_events", "by kind: Service, EndpointSlice, Pod, Node, Namespace"),
		same("pilot_services", ""), same("pilot_virt_services", ""),
		same("pilot_total_xds_rejects", ""), same("pilot_total_xds_internal_errors", ""), same("pilot_xds_expired_nonce", ""), same("pilot_xds_write_timeout", ""),
		same("pilot_xds_cds_reject", ""), same("pilot_xds_eds_reject", ""), same("pilot_xds_lds_reject", ""), same("pilot_xds_rds_reject", ""),
		{"pilot_xds_push_errors", "pilot_xds_closed_total", "by gRPC code"},
		{"pilot_xds_push_context_errors", "pilot_cell_faults", "a bug of the control plane in either case"},
		code("pilot_conflict_inbound_listener", "address-taken"),
		code("pilot_conflict_outbound_listener_http_over_current_tcp", "address-taken"),
		code("pilot_conflict_outbound_listener_tcp_over_current_http", "address-taken"),
		code("pilot_conflict_outbound_listener_tcp_over_current_tcp", "address-taken"),
		code("pilot_conflict_outbound_listener_http_over_https", "address-taken"),
		code("pilot_vservice_dup_domain", "route-overruled"),
		code("pilot_duplicate_envoy_clusters", "host-declared-twice"),
		code("pilot_destrule_subsets", "rule-overruled"),
		code("pilot_eds_no_instances", "subset-no-endpoint"),
		code("pilot_dns_cluster_without_endpoints", "selector-no-endpoint"),
		none("pilot_no_ip", "a pod without an address is no endpoint until it has one, which is nothing to act on"),
		none("pilot_endpoint_not_ready", "/debug/edsz lists the endpoints of a proxy with their health"),
		none("pilot_jwks_resolver_network_fetch_fail_total", "a key set that cannot be fetched is a problem: pilot_problem_codes{code=\"keys-unknown\"}"),
		none("pilot_sds_certificate_errors_total", "a secret that a proxy does not get is a problem: pilot_problem_codes{code=\"resource-missing\"}"),
		none("istiod_managed_clusters", "a remote cluster that cannot be read is a problem: pilot_problem_codes{code=\"cluster-unreadable\"}"),
		none("remote_cluster_sync_timeouts_total", "a remote cluster that cannot be read is a problem: pilot_problem_codes{code=\"cluster-unreadable\"}"),
		same("citadel_server_csr_count", ""), same("citadel_server_success_cert_issuance_count", ""),
		same("citadel_server_csr_parsing_err_count", ""), same("citadel_server_csr_sign_err_count", ""),
		same("citadel_server_authentication_failure_count", ""), same("citadel_server_id_extraction_err_count", ""),
		same("citadel_server_root_cert_expiry_timestamp", ""), same("citadel_server_root_cert_expiry_seconds", ""),
		same("citadel_server_cert_chain_expiry_timestamp", ""), same("citadel_server_cert_chain_expiry_seconds", ""),
		same("galley_validation_passed", ""), same("galley_validation_failed", ""),
		same("galley_validation_http_error", "of both webhooks"), none("galley_validation_config_updates", "the certificate of the webhooks' configuration is written when it differs"),
		same("sidecar_injection_requests_total", ""), same("sidecar_injection_success_total", ""),
		same("sidecar_injection_failure_total", ""), same("sidecar_injection_skip_total", ""),
		same("go_goroutines", ""), same("go_memstats_alloc_bytes", ""), same("go_memstats_heap_inuse_bytes", ""), same("go_memstats_heap_alloc_bytes", ""),
		same("go_memstats_stack_inuse_bytes", ""), same("process_cpu_seconds_total", ""), same("process_resident_memory_bytes", ""), same("process_virtual_memory_bytes", ""),
		none("container_cpu_usage_seconds_total", "it is of Kubernetes, for container=\"discovery\" in pods istiod-*: name container and pods so, or ask process_cpu_seconds_total"),
		none("envoy_cluster_upstream_cx_active", "it is of Envoy, for the cluster xds-grpc, which has this name here, too"),
	}, otherMetrics()...)
}

// otherMetrics are metrics of Istio that have another name here, or none, and that no dashboard of Istio asks for.
func otherMetrics() []istioMetric {
	none := func(name, note string) istioMetric { return istioMetric{name, "", note} }
	return []istioMetric{
		{"pilot_total_rejected_configs", "pilot_problem_codes", "with the label code=\"gateway-overruled\" for servers of Gateways, and code=\"ingress-overruled\" for Ingresses"},
		{"pilot_envoy_filter_status", "pilot_problem_codes", "with the label code=\"patch-no-match\": the problems name each object"},
		{"provider_lookup_cluster_failures", "pilot_problem_codes", "with the label code=\"telemetry-no-provider\": the problems name each object"},
		none("pilot_xds_recv_max", "larger requests than a limit end their stream: pilot_xds_closed_total"),
		{"xds_cache_reads", "pilot_cells_run_total", "cells that were computed; all others were read from memory"},
		{"xds_cache_size", "pilot_cells", "cells that are held"},
		none("xds_cache_evictions", "a cell is held as long as something needs it, and no longer"),
		none("xds_cache_dependent_config_size", "/debug/cellz shows what cells read"),
		none("endpoint_no_pod", "an endpoint needs no pod"),
		none("pilot_k8s_endpoints_with_no_pods", "an endpoint needs no pod"), none("pilot_k8s_endpoints_pending_pod", "nothing waits for a pod: its labels count when it is read"),
		none("pilot_k8s_proxies_with_no_service_targets", "a proxy without a service is nothing to act on; /debug/syncz lists it"),
		none("controller_sync_errors_total", "a source that cannot be read is a problem: pilot_problem_codes{code=\"config-source\"}"),
		none("pilot_worker_queue_depth", "there are no queues of controllers; the time of changes is pilot_commit_duration_seconds"),
		none("istiod_remote_cluster_sync_status", "a remote cluster that cannot be read is a problem: pilot_problem_codes{code=\"cluster-unreadable\"}"),
		none("auto_registration_success_total", "a proxy that is not registered is a problem: pilot_problem_codes{code=\"registration-refused\"}"),
		none("auto_registration_errors_total", "a proxy that is not registered is a problem: pilot_problem_codes{code=\"registration-refused\"}"),
		none("sidecar_injection_time_seconds", "API servers measure it: apiserver_admission_webhook_admission_duration_seconds"),
		none("webhook_patch_failures_total", "the log says it, and pilotctl check shows webhooks without roots"),
	}
}

// metricsTable returns istioMetrics as a table in Markdown.
func metricsTable() string {
	var b strings.Builder
	b.WriteString("| Metric of Istio | Here | Remark |\n|---|---|---|\n")
	for _, m := range istioMetrics() {
		ask := "the same"
		switch m.Ask {
		case "":
			ask = "none"
		case m.Name:
		default:
			ask = "`" + m.Ask + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, ask, m.Note)
	}
	return b.String()
}
