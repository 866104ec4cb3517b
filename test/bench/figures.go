package main

import "slices"

// figure is one line of the table: a measured quantity, its bar, and the value of istiod for the same.
type figure struct {
	key  string // case/figure
	unit string
	// bar is the largest value that passes. Lines without a bar are only watched.
	bar    float64
	barred bool
	// worst: the bar is for the worst repetition, not for the median.
	worst bool
	// istiod is what istiod needed: the state of August 2026 (commit 86c9f01fd73) as releases are built, default
	// settings, the same number of services, streams and rules, from a stub API server, on a machine like this one.
	// Its CPU time is of the server process alone, ours includes the clients. 0 means that it was not measured.
	istiod float64
}

func watched(key, unit string, istiod float64) figure {
	return figure{key: key, unit: unit, istiod: istiod}
}

func atMost(bar float64, key, unit string, istiod float64) figure {
	return figure{key: key, unit: unit, bar: bar, barred: true, istiod: istiod}
}

func never(bar float64, key, unit string, istiod float64) figure {
	return figure{key: key, unit: unit, bar: bar, barred: true, worst: true, istiod: istiod}
}

// figures is the table, in the order in which it is printed. "extra" are resources and removals that a stream received
// beyond the changed ones.
func figures() []figure {
	return slices.Concat(ruleFigures(), serviceFigures(), envoyFigures(), hostFigures(), fleetFigures(), loopFigures(), connectFigures(), agentFigures(), registryFigures())
}

// ruleFigures are the figures of changes of endpoints and routing rules on their way to settled streams.
func ruleFigures() []figure {
	return []figure{
		atMost(10, "endpoint-1k/cpu", "CPU-ms", 120),
		atMost(10, "endpoint-1k/last-p50", "ms", 150),
		atMost(20, "endpoint-1k/last-p99", "ms", 157),
		watched("endpoint-1k/bytes", "KB", 237),
		never(0, "endpoint-1k/extra", "resources", 0),
		watched("endpoint-1k/cpu-own-tcp", "CPU-ms", 120),
		watched("endpoint-1k/last-p50-own-tcp", "ms", 150),

		watched("virtualservice-1k/cells", "cells", 0),
		atMost(1, "virtualservice-1k/ready", "ms", 0),
		atMost(0.25, "virtualservice-1k/cpu", "CPU-s", 2.08),
		watched("virtualservice-1k/bytes", "MB", 257),
		watched("virtualservice-1k/last-p50", "ms", 746),
		never(0, "virtualservice-1k/extra", "resources", 0),

		watched("virtualservice-10k/cells", "cells", 0),
		atMost(2, "virtualservice-10k/ready", "ms", 0),
		atMost(0.12, "virtualservice-10k/cpu", "CPU-s", 2.55),
		watched("virtualservice-10k/bytes", "MB", 102),
		watched("virtualservice-10k/last-p50", "ms", 1450),
		never(0, "virtualservice-10k/extra", "resources", 0),
		never(0, "virtualservice-10k/cells-beyond-1k", "cells", 0),
		watched("virtualservice-10k-cluster-names/cells", "cells", 0),
		watched("virtualservice-10k-cluster-names/ready", "ms", 0),

		watched("destinationrule-1k/cells", "cells", 0),
		never(0, "destinationrule-1k/cells-beyond-at-10k", "cells", 0),
		watched("destinationrule-1k/ready", "ms", 0),
		watched("destinationrule-1k/cpu", "CPU-ms", 2060),
		watched("destinationrule-1k/bytes", "MB", 259),
		watched("destinationrule-1k/last-p50", "ms", 860),
		never(0, "destinationrule-1k/extra", "resources", 0),
	}
}

// serviceFigures are the figures of added and removed services, of changes of Sidecars, and of changes of nothing.
func serviceFigures() []figure {
	return []figure{
		watched("service-add-1k/cells", "cells", 0),
		never(0, "service-add-1k/cells-beyond-at-10k", "cells", 0),
		watched("service-add-1k/ready", "ms", 0),
		watched("service-add-1k/cpu", "CPU-ms", 2080),
		watched("service-add-1k/bytes", "MB", 258),
		watched("service-add-1k/last-p50", "ms", 745),
		never(0, "service-add-1k/extra", "resources", 0),

		watched("service-remove-1k/cells", "cells", 0),
		never(0, "service-remove-1k/cells-beyond-at-10k", "cells", 0),
		watched("service-remove-1k/ready", "ms", 0),
		watched("service-remove-1k/cpu", "CPU-ms", 0),
		watched("service-remove-1k/bytes", "MB", 0),
		watched("service-remove-1k/last-p50", "ms", 0),
		never(0, "service-remove-1k/extra", "resources", 0),

		watched("sidecar-1k/cells", "cells", 0),
		never(0, "sidecar-1k/cells-beyond-at-10k", "cells", 0),
		watched("sidecar-1k/ready", "ms", 0),
		watched("sidecar-1k/cpu", "CPU-ms", 0),
		watched("sidecar-1k/bytes", "MB", 0),
		watched("sidecar-1k/last-p50", "ms", 0),
		never(0, "sidecar-1k/extra", "resources", 0),

		atMost(1.1, "policies-1k/endpoint-ratio", "times", 0),
		atMost(1.1, "policies-1k/virtualservice-ratio", "times", 0),
		atMost(1.1, "policies-1k/churn-ratio", "times", 0),

		atMost(10, "patches-1k/one-cpu", "CPU-ms", 0),
		watched("patches-1k/all-cpu", "CPU-ms", 0),
		atMost(1.5, "patches-1k/all-ratio", "times", 0),
		atMost(1.1, "patches-1k/endpoint-ratio", "times", 0),
		atMost(1.1, "patches-1k/virtualservice-ratio", "times", 0),
		atMost(1.1, "patches-1k/churn-ratio", "times", 0),

		atMost(1.35, "metrics-envoy/client-ratio", "times", 0),
		atMost(1.35, "metrics-envoy/server-ratio", "times", 0),

		atMost(5, "analyze-10k/wall", "s", 0),
		watched("analyze-10k/cpu", "CPU-s", 0),

		never(0, "noop-1k/cells", "cells", 0),
		never(0, "noop-1k/bytes", "B", 257e6),
	}
}

// envoyFigures are the figures of changes on their way to real Envoys.
func envoyFigures() []figure {
	return []figure{
		atMost(1, "three-envoys/ready", "s", 0),
		watched("three-envoys/p50", "ms", 0),
		atMost(50, "three-envoys/p99", "ms", 0),
		watched("three-envoys/max", "ms", 0),

		watched("edit-envoy-1k/vhds-p50", "ms", 0),
		watched("edit-envoy-1k/vhds-p99", "ms", 0),
		watched("edit-envoy-1k/whole-p50", "ms", 0),
		watched("edit-envoy-1k/whole-p99", "ms", 0),
		atMost(1, "edit-envoy-1k/ratio", "times", 0),
		atMost(50, "edit-envoy-1k/vhds-main", "% of a core", 0),
		watched("edit-envoy-1k/whole-main", "% of a core", 0),
		never(0, "edits-10k/vhds-failed", "requests", 0),
		never(0, "edits-10k/demand-failed", "requests", 0),
		never(0, "edits-10k/whole-failed", "requests", 0),
		watched("edits-10k/vhds-requests", "requests", 0),
		watched("edits-10k/demand-requests", "requests", 0),
		watched("edits-10k/whole-requests", "requests", 0),

		watched("demand-10k/all-idle", "MB", 0),
		watched("demand-10k/all-used", "MB", 0),
		watched("demand-10k/all-first", "ms", 0),
		watched("demand-10k/demand-idle", "MB", 0),
		watched("demand-10k/demand-used", "MB", 0),
		watched("demand-10k/demand-first", "ms", 0),
	}
}

// hostFigures are the figures of clients that get virtual hosts as resources of their own.
func hostFigures() []figure {
	return []figure{
		atMost(20, "virtualhost-1k/cpu", "CPU-ms", 2080),
		atMost(1.024, "virtualhost-1k/bytes", "KB per stream", 514),
		watched("virtualhost-1k/last-p50", "ms", 746),
		atMost(25, "virtualhost-1k/last-p99", "ms", 0),
		never(0, "virtualhost-1k/extra", "resources", 0),
		atMost(60, "virtualhost-add-1k/cpu", "CPU-ms", 2080),
		atMost(4, "virtualhost-add-1k/bytes", "KB per stream", 516),
		watched("virtualhost-add-1k/last-p99", "ms", 0),
		never(0, "virtualhost-add-1k/extra", "resources", 0),
		atMost(60, "virtualhost-remove-1k/cpu", "CPU-ms", 0),
		atMost(4, "virtualhost-remove-1k/bytes", "KB per stream", 0),
		never(0, "virtualhost-remove-1k/extra", "resources", 0),
		watched("virtualhost-10k/cpu", "CPU-ms", 2550),
		atMost(1.024, "virtualhost-10k/bytes", "KB per stream", 5100),
		never(0, "virtualhost-10k/extra", "resources", 0),
		atMost(10, "gateway-1k/route-cpu", "CPU-ms", 0),
		atMost(6, "gateway-1k/route-bytes", "KB per replica", 0),
		atMost(25, "gateway-1k/route-last-p99", "ms", 0),
		atMost(10, "gateway-1k/host-cpu", "CPU-ms", 0),
		atMost(6, "gateway-1k/host-bytes", "KB per replica", 0),
		watched("gateway-1k/host-last-p50", "ms", 0),
		atMost(25, "gateway-1k/host-last-p99", "ms", 0),
		atMost(10, "gateway-1k/gateway-cpu", "CPU-ms", 0),
		atMost(6, "gateway-1k/gateway-bytes", "KB per replica", 0),
		atMost(25, "gateway-1k/gateway-last-p99", "ms", 0),
		atMost(10, "gateway-1k/certificate-cpu", "CPU-ms", 0),
		atMost(6, "gateway-1k/certificate-bytes", "KB per replica", 0),
		atMost(25, "gateway-1k/certificate-last-p99", "ms", 0),
		watched("gateway-plain-1k/certificate-cpu", "CPU-ms", 0),
		watched("gateway-plain-1k/gateway-cpu", "CPU-ms", 0),
		watched("gateway-plain-1k/route-cpu", "CPU-ms", 0),
		watched("gateway-plain-1k/host-cpu", "CPU-ms", 0),
		watched("gateway-plain-1k/host-bytes", "KB per replica", 0),
		watched("gateway-plain-1k/host-last-p50", "ms", 0),
		atMost(1, "virtualhost-reconnect-1k/cpu", "CPU-s", 14),
		atMost(5, "virtualhost-reconnect-1k/bytes", "% of cold", 100),
	}
}

// fleetFigures are the figures of the largest fleets.
func fleetFigures() []figure {
	return []figure{
		watched("fleet-10k/cold", "s", 0),
		watched("fleet-10k/memory-cold", "GB", 0),
		atMost(1, "fleet-10k/endpoint-last", "s", 0),
		atMost(2, "fleet-10k/memory", "GB", 0),
		atMost(100, "fleet-10k/per-connection", "KB", 0),
		atMost(60, "fleet-10k/restart", "s", 0),
		never(0, "fleet-10k/resent", "resources", 0),
		watched("fleet-10k/memory-restart", "GB", 0),
		watched("fleet-10k-services/cold", "s", 0),
		watched("fleet-10k-services/memory-cold", "GB", 0),
		watched("fleet-10k-services/endpoint-last", "s", 0),
		watched("fleet-10k-services/memory", "GB", 0),
		watched("fleet-10k-services/per-connection", "KB", 0),
		watched("fleet-10k-services/restart", "s", 0),
		never(0, "fleet-10k-services/resent", "resources", 0),
		watched("fleet-10k-services/memory-restart", "GB", 0),
		watched("fleet-2k-classes/cold", "s", 0),
		watched("fleet-2k-classes/memory-cold", "GB", 0),
		watched("fleet-2k-classes/endpoint-last", "s", 0),
		watched("fleet-2k-classes/memory", "GB", 0),
		watched("fleet-2k-classes/per-connection", "KB", 0),
		watched("fleet-2k-classes/restart", "s", 0),
		never(0, "fleet-2k-classes/resent", "resources", 0),
		watched("fleet-2k-classes/memory-restart", "GB", 0),
		watched("fleet-two/cold", "s", 0),
		atMost(1, "fleet-two/endpoint-last", "s", 0),
		never(0, "fleet-two/extra", "resources", 0),
		watched("fleet-two/memory", "GB", 0),
		watched("fleet-two/churn-last", "s", 0),
		watched("fleet-two/churn-cores", "cores", 0),
		watched("fleet-two/move-last", "s", 0),
		watched("fleet-two/move-resources", "per proxy", 0),
		watched("fleet-two/rolling", "s", 0),
		never(0, "fleet-two/rolling-resent", "resources", 0),
		watched("fleet-two/memory-rolling", "GB", 0),
	}
}

// agentFigures are the figures of certificates, and of the names of an agent.
func agentFigures() []figure {
	return []figure{
		atMost(15, "certificates/wall", "s", 0),
		atMost(4, "certificates/cpu", "CPU-s", 0),
		atMost(0.1, "certificates/idle", "% of a core", 0),
		watched("certificates/idle-with-streams", "% of a core", 0),

		atMost(1, "relay-1k/ready", "s", 0),
		atMost(1.25, "relay-1k/ready-ratio", "times", 0),
		watched("relay-1k/direct-ready", "s", 0),
		atMost(40, "relay-1k/memory", "MB", 0),
		atMost(1, "relay-1k/adds-p99", "ms", 0),
		watched("relay-1k/adds-p50", "ms", 0),
		watched("relay-1k/direct-p50", "ms", 0),
		watched("relay-1k/direct-p99", "ms", 0),
		watched("relay-1k/through-p50", "ms", 0),
		watched("relay-1k/through-p99", "ms", 0),
		watched("relay-1k/apart-p50", "ms", 0),
		watched("relay-1k/apart-p99", "ms", 0),
		atMost(30, "relay-1k/adds-cpu", "%", 0),
		atMost(2, "names-10k/answer-p99", "ms", 0),
		watched("names-10k/answer-p50", "ms", 0),
		watched("names-10k/answer-max", "ms", 0),
		watched("names-10k/rate", "queries/s", 0),
		atMost(20, "names-10k/memory-of-names", "MB", 0),
		watched("names-10k/memory", "MB", 0),
		watched("capture/nft-p50", "ms", 0),
		atMost(150, "capture/nft-p99", "ms", 0),
		watched("capture/legacy-p50", "ms", 0),
		atMost(150, "capture/legacy-p99", "ms", 0),
		watched("capture/native-p50", "ms", 0),
		atMost(150, "capture/native-p99", "ms", 0),
	}
}

// connectFigures are the figures of a steady churn, of streams that come and go, and of the memory kept for them.
func connectFigures() []figure {
	return []figure{
		watched("churn/staleness-p50", "ms", 5110),
		atMost(50, "churn/staleness-p99", "ms", 10200),
		atMost(0.5, "churn/cores", "cores", 0.16),
		watched("churn/bare-cores", "cores", 0),
		atMost(0.5, "churn/server-cores", "cores", 0.16),
		atMost(5, "churn/heap-growth", "%", 0),
		watched("churn/delivered", "%", 0),

		atMost(2, "cold-1k/cpu", "CPU-s", 15.3),
		watched("cold-1k/wall", "s", 9.1),
		watched("cold-1k/bytes", "MB", 1120),
		watched("cold-1k/cpu-own-tcp", "CPU-s", 15.3),
		watched("cold-10k/cpu", "CPU-s", 8.7),
		watched("cold-10k/wall", "s", 3.9),
		watched("cold-10k/bytes", "MB", 450),

		watched("building-10k/last-p50", "ms", 0),
		never(20, "building-10k/last-max", "ms", 0),
		watched("building-10k/waited-max", "ms", 0),
		watched("building-10k/commit-max", "ms", 0),
		watched("building-10k/built-in", "ms", 0),

		atMost(100, "derived-10k/heap", "MB", 0),
		atMost(0.1, "derived-10k/heap-per-class", "MB", 0),
		atMost(12, "derived-10k/cells-per-service", "cells", 0),
		watched("derived-10k-cluster-names/heap", "MB", 0),
		watched("derived-10k-cluster-names/heap-per-class", "MB", 0),
		watched("derived-10k-cluster-names/cells-per-service", "cells", 0),
		watched("derived-10k/rows", "MB", 0),
		watched("derived-10k/heap-with-rows", "MB", 96),

		watched("stream-memory/bare", "KiB", 0),
		atMost(8, "stream-memory/delta-100", "KiB", 0),
		atMost(8, "stream-memory/delta-10k", "KiB", 2800),
		atMost(8, "stream-memory/sotw-100", "KiB", 0),
		atMost(8, "stream-memory/sotw-10k", "KiB", 0),
		watched("stream-memory/bare-own-tcp", "KiB", 0),
		watched("stream-memory/delta-100-own-tcp", "KiB", 0),

		atMost(5, "reconnect-1k/bytes", "% of cold", 100),
		atMost(1, "reconnect-1k/cpu", "CPU-s", 14),
		watched("reconnect-1k/up", "MB", 0),
		watched("reconnect-1k/wall", "s", 9.1),

		atMost(1.5, "neighbour/connect-ratio", "x", 0),
		atMost(1.5, "neighbour/route-ratio", "x", 0),
		atMost(1.5, "neighbour/certificate-ratio", "x", 0),
		watched("neighbour/connect-alone", "ms", 0),
		watched("neighbour/route-alone", "ms", 0),
		watched("neighbour/certificate-alone", "ms", 0),

		watched("silent-1k/p99", "ms", 0),
		atMost(1.5, "silent-1k/p99-ratio", "x", 0),
		never(8, "silent-1k/live-states", "per class", 0),
		never(15, "silent-1k/let-go", "s", 0),
		never(15, "silent-1k/closed", "s", 0),
	}
}
