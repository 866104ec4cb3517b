package rules

import (
	"maps"
	"math"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// workloadGroup checks a WorkloadGroup. Each workload has its own address, so the template needs none.
func (c *checker) workloadGroup(p *document.Path, s *networking.WorkloadGroup) {
	template := p.Field("template")
	if s.Template == nil {
		c.Fail(template, "a WorkloadGroup needs a template for its workloads; write template: {} if it says nothing")
	}
	if address := s.GetTemplate().GetAddress(); syntax.IsUnix(address) {
		c.Rule(template.Field("address"), syntax.Unix(address))
		if len(s.Template.Ports) > 0 {
			c.Fail(template.Field("ports"), "a socket has no ports; remove them")
		}
	}
	labels := p.Field("metadata").Field("labels")
	for _, key := range slices.Sorted(maps.Keys(s.GetMetadata().GetLabels())) {
		c.Rule(labels.Key(key), syntax.WorkloadLabel(key, s.Metadata.Labels[key]))
	}
	annotations := p.Field("metadata").Field("annotations")
	for _, key := range slices.Sorted(maps.Keys(s.GetMetadata().GetAnnotations())) {
		c.Rule(annotations.Key(key), syntax.Annotation(key))
	}
	if s.Probe != nil {
		c.probe(p.Field("probe"), s.Probe)
	}
}

// probe checks how the health of a workload is found out.
func (c *checker) probe(p *document.Path, probe *networking.ReadinessProbe) {
	for _, n := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", probe.InitialDelaySeconds}, {"timeoutSeconds", probe.TimeoutSeconds}, {"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold}, {"failureThreshold", probe.FailureThreshold},
	} {
		if n.value < 0 {
			c.Fail(p.Field(n.field), "%d is less than 0", n.value)
		}
	}
	port := func(of string, n uint32) {
		if n == 0 || n > math.MaxUint16 {
			c.Rule(p.Field(of).Field("port"), syntax.Port(n))
		}
	}
	switch m := probe.HealthCheckMethod.(type) {
	case *networking.ReadinessProbe_HttpGet:
		port("httpGet", m.HttpGet.GetPort())
		c.httpProbe(p.Field("httpGet"), m.HttpGet)
	case *networking.ReadinessProbe_TcpSocket:
		port("tcpSocket", m.TcpSocket.GetPort())
	case *networking.ReadinessProbe_Grpc: // package shape checks the port
	case *networking.ReadinessProbe_Exec:
		if len(m.Exec.GetCommand()) == 0 {
			c.Fail(p.Field("exec").Field("command"), "a command has at least one word")
		}
		for i, word := range m.Exec.GetCommand() {
			if word == "" {
				c.Fail(p.Field("exec").Field("command").At(i), "a word of a command must not be empty")
			}
		}
	case nil:
		c.Fail(p, "the probe names no way to ask the application; set httpGet, tcpSocket, exec or grpc")
	}
}

// httpProbe checks a probe by a request.
func (c *checker) httpProbe(p *document.Path, probe *networking.HTTPHealthCheckConfig) {
	if s := probe.GetScheme(); s != "" && s != "HTTP" && s != "HTTPS" {
		c.Fail(p.Field("scheme"), "must be HTTP or HTTPS, not %s", document.Quote(s))
	}
	for i, h := range probe.GetHttpHeaders() {
		at := p.Field("httpHeaders").At(i).Field("name")
		if h.GetName() == "" || strings.Trim(h.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			c.Fail(at, "%s is not the name of a header of letters, digits and -", document.Quote(h.GetName()))
		}
	}
}
