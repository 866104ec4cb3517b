package proxy

import "testing"

// TestHostsOnDemand: a sidecar asks for hosts if it says so, and if its Envoy was measured. It needs virtual hosts as resources of their own.
func TestHostsOnDemand(t *testing.T) {
	for _, c := range []struct {
		role, metadata string
		envoy          uint32
		want           bool
	}{
		{"sidecar", `{"ON_DEMAND_HOSTS": "true"}`, 40, true}, {"sidecar", `{}`, 40, false}, {"sidecar", `{"ON_DEMAND_HOSTS": "false"}`, 40, false},
		{"sidecar", `{"ON_DEMAND_HOSTS": "true", "VHDS": "false"}`, 40, false}, {"sidecar", `{"ON_DEMAND_HOSTS": "true"}`, 39, false},
		{"sidecar", `{"ON_DEMAND_HOSTS": "true"}`, 41, false}, {"sidecar", `{"ON_DEMAND_HOSTS": "true"}`, 0, false}, {"router", `{"ON_DEMAND_HOSTS": "true"}`, 40, false},
	} {
		p, err := Parse(Node{ID: c.role + "~10.1.1.1~a.b~b.svc.cluster.local", Envoy: c.envoy, Metadata: metadata(t, c.metadata)})
		if err != nil || p.HostsOnDemand != c.want {
			t.Errorf("%+v: %t, %v", c, p.HostsOnDemand, err)
		}
	}
}

// The choice is the node's. Without one it follows from the number of hosts, for versions of Envoy that were measured. No Envoy gets certificates on demand
// that would refuse the listener.
func TestOnDemand(t *testing.T) {
	for _, c := range []struct {
		role, text string
		envoy      uint32
		want       OnDemand
	}{
		{"router", "", 40, OnDemandByCount}, {"router", "", 37, OnDemandByCount},
		{"router", "", 36, OnDemandOff}, {"router", "", 41, OnDemandOff}, {"router", "", 0, OnDemandOff},
		{"router", "true", 40, OnDemandOn}, {"router", "1", 41, OnDemandOn}, {"router", "True", 0, OnDemandOn}, {"router", "true", 36, OnDemandOff},
		{"router", "false", 40, OnDemandOff}, {"router", "0", 40, OnDemandOff},
		{"sidecar", "true", 40, OnDemandOff}, {"sidecar", "", 40, OnDemandOff},
	} {
		p, err := Parse(Node{ID: c.role + "~10.1.1.1~a.b~b.svc.cluster.local", Envoy: c.envoy, Metadata: metadata(t, `{"ON_DEMAND_CERTIFICATES": "`+c.text+`"}`)})
		if err != nil || p.OnDemand != c.want {
			t.Errorf("%+v: %v, %v", c, p, err)
		}
	}
	if _, err := Parse(Node{ID: "router~10.1.1.1~a.b~b.svc.cluster.local", Metadata: metadata(t, `{"ON_DEMAND_CERTIFICATES": "perhaps"}`)}); err == nil {
		t.Error("a choice that cannot be read is taken")
	}
}
