package inject

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/pilotmesh/pilot/internal/inject/scrape"
)

// mergedPath is where the agent serves the metrics of proxy and application.
const mergedPath = "/stats/prometheus"

// scrapeVariable says to the agent where the application serves its metrics. Its value is a scrape.Settings.
const scrapeVariable = "ISTIO_PROMETHEUS_ANNOTATIONS"

// mergeMetrics points Prometheus at the agent. It returns the value of the variable with the pod's own annotations; empty if there are none.
func (j *job) mergeMetrics() (string, error) {
	pod := j.pod
	if port := j.config.GetProxyMetadata()["ENVOY_SECURE_MERGED_METRICS_PORT"]; port != "" && pod.Annotations[securePortAnnotation] == "" {
		setIn(&pod.Annotations, securePortAnnotation, port)
	}
	merge := true
	if m := j.injector.config.Mesh.GetEnablePrometheusMerge(); m != nil {
		merge = m.Value
	}
	if text, ok := pod.Annotations[mergeAnnotation]; ok {
		merge, _ = strconv.ParseBool(text)
	}
	s := scrape.Of(pod.Annotations)
	if wanted, err := strconv.ParseBool(s.Scrape); err == nil && !wanted {
		merge = false
	}
	port := strconv.Itoa(int(j.statusPort))
	if !merge || s.Port == port || j.statusPort == 0 { // with this port the pod has pointed Prometheus at the agent itself
		return "", nil
	}
	unset := s.Unset()
	s.Targets, _ = scrape.ParseTargets(pod.Annotations[targetsAnnotation])
	scrape.Clear(pod.Annotations)
	setIn(&pod.Annotations, scrape.Name, "true")
	setIn(&pod.Annotations, scrape.PathName, mergedPath)
	setIn(&pod.Annotations, scrape.PortName, port)
	if unset && len(s.Targets) == 0 {
		return "", nil
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encoding the Prometheus annotations: %w", err)
	}
	return string(b), nil
}

// setIn sets an entry of a map, which may be nil yet.
func setIn(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
