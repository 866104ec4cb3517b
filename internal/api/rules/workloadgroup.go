package rules

import (
	"math"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// workloadGroup checks a WorkloadGroup. The address of its template is that of each workload, so it is not required.
func (c *checker) workloadGroup(p *document.Path, s *networking.WorkloadGroup) {
	template := p.Field("template")
	if s.Template == nil {
		c.fail(template, "a WorkloadGroup needs a template for its workloads; write template: {} if it says nothing")
	}
	if s.GetTemplate().GetAddress() != "" {
		c.warn(template.Field("address"), "each workload has the address of its proxy: ignored")
	}
	labels := p.Field("metadata").Field("labels")
	for _, key := range sortedKeys(s.GetMetadata().GetLabels()) {
		c.rule(labels.Key(key), ObjectLabel(key, s.Metadata.Labels[key]))
	}
	annotations := p.Field("metadata").Field("annotations")
	for _, key := range sortedKeys(s.GetMetadata().GetAnnotations()) {
		c.rule(annotations.Key(key), Annotation(key))
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
			c.fail(p.Field(n.field), "%d is less than 0", n.value)
		}
	}
	port := func(of string, n uint32) {
		if n == 0 || n > math.MaxUint16 {
			c.rule(p.Field(of).Field("port"), checkPort(n))
		}
	}
	switch m := probe.HealthCheckMethod.(type) {
	case *networking.ReadinessProbe_HttpGet:
		port("httpGet", m.HttpGet.GetPort())
	case *networking.ReadinessProbe_TcpSocket:
		port("tcpSocket", m.TcpSocket.GetPort())
	case *networking.ReadinessProbe_Grpc:
		if n := m.Grpc.GetPort(); n != 0 {
			port("grpc", n)
		}
	case *networking.ReadinessProbe_Exec:
		if len(m.Exec.GetCommand()) == 0 {
			c.fail(p.Field("exec").Field("command"), "a command has at least one word")
		}
	case nil:
		c.warn(p, "the probe names no way to ask the application (httpGet, tcpSocket, exec or grpc): workloads stay unhealthy until their proxies report health")
	}
}
