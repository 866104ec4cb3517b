// Package scrape reads the annotations with which pods ask Prometheus to scrape them. It is pure: it has no goroutines and no state.
package scrape

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// The names of the annotations.
const (
	Name     = "prometheus.io/scrape"
	PathName = "prometheus.io/path"
	PortName = "prometheus.io/port"
)

// Settings is the content of the annotations, and further targets, as the agent reads them.
type Settings struct {
	Scrape  string   `json:"scrape"`
	Path    string   `json:"path"`
	Port    string   `json:"port"`
	Targets []Target `json:"targets,omitempty"`
}

// Target is a port and a path at which the application serves metrics.
type Target struct {
	Path string `json:"path"`
	Port string `json:"port"`
}

// Unset reports whether there is no annotation.
func (s Settings) Unset() bool { return s.Scrape == "" && s.Path == "" && s.Port == "" }

// ParseTargets reads a list of PORT:PATH, separated by commas. The path is /metrics if it is absent. mistake is empty if the list is valid.
func ParseTargets(text string) (list []Target, mistake string) {
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		port, path, _ := strings.Cut(one, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || path != "" && !strings.HasPrefix(path, "/") {
			return nil, fmt.Sprintf("%.80q is not PORT:PATH, such as 9000:/metrics; separate several by commas", one)
		}
		switch n {
		case 15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090:
			return nil, fmt.Sprintf("port %d is one of the proxy's own, whose metrics are served anyway; name ports of the application", n)
		}
		if path == "" {
			path = "/metrics"
		}
		list = append(list, Target{path, port})
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

// Of returns the settings that the annotations of a pod have, in any spelling.
func Of(annotations map[string]string) (s Settings) {
	for name, value := range annotations {
		switch sanitized(name) {
		case sanitized(Name):
			s.Scrape = value
		case sanitized(PathName):
			s.Path = value
		case sanitized(PortName):
			s.Port = value
		}
	}
	return s
}

// Clear removes the annotations, in any spelling.
func Clear(annotations map[string]string) {
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		switch sanitized(name) {
		case sanitized(Name), sanitized(PathName), sanitized(PortName):
			return true
		}
		return false
	})
}
