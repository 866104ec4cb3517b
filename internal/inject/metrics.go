package inject

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The annotations with which pods ask Prometheus to scrape them, and the path at which the agent serves the metrics of proxy and application.
const (
	scrapeName     = "prometheus.io/scrape"
	scrapePathName = "prometheus.io/path"
	scrapePortName = "prometheus.io/port"
	mergedPath     = "/stats/prometheus"
	// scrapeVariable says to the agent where the application serves its metrics.
	scrapeVariable = "ISTIO_PROMETHEUS_ANNOTATIONS"
)

// scrape is the content of that variable.
type scrape struct {
	Scrape  string   `json:"scrape"`
	Path    string   `json:"path"`
	Port    string   `json:"port"`
	Targets []target `json:"targets,omitempty"`
}

// target is a port and a path at which the application serves metrics.
type target struct {
	Path string `json:"path"`
	Port string `json:"port"`
}

// scrapeTargets reads a list of PORT:PATH. The second result is the mistake, if there is one.
func scrapeTargets(text string) (list []target, wrong string) {
	for _, one := range items(text) {
		port, path, _ := strings.Cut(one, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || path != "" && !strings.HasPrefix(path, "/") {
			return nil, quote(one) + " is not PORT:PATH, such as 9000:/metrics; separate several by commas"
		}
		switch n {
		case 15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090:
			return nil, fmt.Sprintf("port %d is one of the proxy's own, whose metrics are served anyway; name ports of the application", n)
		}
		if path == "" {
			path = "/metrics"
		}
		list = append(list, target{path, port})
	}
	return list, ""
}

// sanitized returns the name that Prometheus gives to the label of an annotation: several spellings are the same annotation for it.
func sanitized(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// scrapeOf returns what the annotations of a pod say, in whatever spelling.
func scrapeOf(pod *corev1.Pod) (s scrape) {
	for name, value := range pod.Annotations {
		switch sanitized(name) {
		case sanitized(scrapeName):
			s.Scrape = value
		case sanitized(scrapePathName):
			s.Path = value
		case sanitized(scrapePortName):
			s.Port = value
		}
	}
	return s
}

func clearScrape(pod *corev1.Pod) {
	for name := range pod.Annotations {
		switch sanitized(name) {
		case sanitized(scrapeName), sanitized(scrapePathName), sanitized(scrapePortName):
			delete(pod.Annotations, name)
		}
	}
}

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
	s := scrapeOf(pod)
	if wanted, err := strconv.ParseBool(s.Scrape); err == nil && !wanted {
		merge = false
	}
	port := strconv.Itoa(int(j.statusPort))
	if !merge || s.Port == port || j.statusPort == 0 { // with this port the pod has pointed Prometheus at the agent itself
		return "", nil
	}
	s.Targets, _ = scrapeTargets(pod.Annotations[targetsAnnotation])
	clearScrape(pod)
	setIn(&pod.Annotations, scrapeName, "true")
	setIn(&pod.Annotations, scrapePathName, mergedPath)
	setIn(&pod.Annotations, scrapePortName, port)
	if s.Scrape == "" && s.Path == "" && s.Port == "" && len(s.Targets) == 0 {
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
