package settings

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

const (
	defaultTrustDomain = "cluster.local"
	defaultDNSRefresh  = time.Minute
)

// writePolicies writes the settings that apply where no rule has its own.
func (t *Settings) writePolicies(tx *store.Txn, m *meshconfig.MeshConfig) {
	message := func(s Setting, v proto.Message, set bool) {
		if set {
			t.rows.Set(tx, s, Value{Message: v})
		} else {
			t.rows.Delete(tx, s)
		}
	}
	flag := func(s Setting, set bool) {
		v := Value{}
		if set {
			v.Number = 1
		}
		t.rows.Set(tx, s, v)
	}
	flag(autoMTLS, m.GetEnableAutoMtls() == nil || m.GetEnableAutoMtls().GetValue())
	flag(http2Upgrade, m.GetH2UpgradePolicy() == meshconfig.MeshConfig_UPGRADE)
	trusted := m.GetTrustDomain()
	if trusted == "" {
		trusted = defaultTrustDomain
	}
	t.rows.Set(tx, trustDomains, Value{List: intern.Of(append([]string{trusted}, m.GetTrustDomainAliases()...)...)})
	message(certificates, &meshconfig.MeshConfig{CaCertificates: m.GetCaCertificates()}, len(m.GetCaCertificates()) > 0)
	message(baseline, m.GetDefaultTrafficPolicy(), m.GetDefaultTrafficPolicy() != nil)
	message(localityBalancing, m.GetLocalityLbSetting(), m.GetLocalityLbSetting() != nil)
	message(zoneBalancing, m.GetZoneAwareLbSetting(), m.GetZoneAwareLbSetting() != nil)
	unknown := m.GetOutboundTrafficPolicy().GetTls()
	message(unknownTLS, unknown, unknown != nil)
	message(keepalive, m.GetTcpKeepalive(), m.GetTcpKeepalive() != nil)
	flag(meshByLocality, len(m.GetLocalityLbSetting().GetDistribute()) > 0 || m.GetZoneAwareLbSetting() != nil ||
		m.GetDefaultTrafficPolicy().GetOutlierDetection() != nil)
	refresh := defaultDNSRefresh
	if d := m.GetDnsRefreshRate(); d != nil && d.AsDuration() > 0 {
		refresh = d.AsDuration()
	}
	t.rows.Set(tx, dnsRefresh, Value{Number: int64(refresh)})
}

// AutoMTLS reports whether proxies use mesh TLS towards endpoints that accept it, without a rule for it.
func (t *Settings) AutoMTLS(r store.Reader) bool {
	v, ok := t.rows.Get(r, autoMTLS)
	return !ok || v.Number != 0
}

// PresentTrustDomains returns the same as TrustDomains, for the goroutine that commits.
func (t *Settings) PresentTrustDomains() []string {
	if v, ok := t.rows.Peek(trustDomains); ok {
		return v.List.Items()
	}
	return []string{defaultTrustDomain}
}

// PresentRootNamespace returns the same as RootNamespace, for the goroutine that commits.
func (t *Settings) PresentRootNamespace() string {
	if v, ok := t.rows.Peek(rootNamespace); ok && v.Text != "" {
		return v.Text
	}
	return defaultRootNamespace
}

// PresentCACertificates returns further roots of the mesh, for the goroutine that commits. It returns the same message as long as nothing
// changes; nil if there are none.
func (t *Settings) PresentCACertificates() *meshconfig.MeshConfig {
	v, _ := t.rows.Peek(certificates)
	m, _ := v.Message.(*meshconfig.MeshConfig)
	return m
}

// CACertificates returns further roots of the mesh; nil if there are none.
func (t *Settings) CACertificates(r store.Reader) *meshconfig.MeshConfig {
	return message[*meshconfig.MeshConfig](t, r, certificates)
}

// TrustDomains returns the trust domain of the mesh, followed by its aliases.
func (t *Settings) TrustDomains(r store.Reader) []string {
	if v, ok := t.rows.Get(r, trustDomains); ok {
		return v.List.Items()
	}
	return []string{defaultTrustDomain}
}

// Baseline returns the default traffic policy of services; nil if the mesh has none.
func (t *Settings) Baseline(r store.Reader) *meshconfig.MeshConfig_DefaultTrafficPolicy {
	return message[*meshconfig.MeshConfig_DefaultTrafficPolicy](t, r, baseline)
}

// LocalityBalancing returns the locality load balancing of the mesh; nil if it has none.
func (t *Settings) LocalityBalancing(r store.Reader) *networking.LocalityLoadBalancerSetting {
	return message[*networking.LocalityLoadBalancerSetting](t, r, localityBalancing)
}

// ZoneBalancing returns the zone-aware load balancing of the mesh; nil if it has none.
func (t *Settings) ZoneBalancing(r store.Reader) *networking.ZoneAwareLoadBalancerSetting {
	return message[*networking.ZoneAwareLoadBalancerSetting](t, r, zoneBalancing)
}

// MeshByLocality reports whether the mesh makes the choice of endpoints of every service depend on where the client runs.
func (t *Settings) MeshByLocality(r store.Reader) bool {
	v, _ := t.rows.Get(r, meshByLocality)
	return v.Number != 0
}

// Keepalive returns the TCP keepalive of connections to endpoints; nil if the mesh has none.
func (t *Settings) Keepalive(r store.Reader) *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive {
	return message[*networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive](t, r, keepalive)
}

// UnknownTLS returns the TLS settings for undeclared hosts that proxies resolve themselves; nil if they do not use TLS.
func (t *Settings) UnknownTLS(r store.Reader) *networking.ClientTLSSettings {
	return message[*networking.ClientTLSSettings](t, r, unknownTLS)
}

// HTTP2Upgrade reports whether requests over HTTP/1.1 are upgraded to HTTP/2 towards endpoints by default.
func (t *Settings) HTTP2Upgrade(r store.Reader) bool {
	v, _ := t.rows.Get(r, http2Upgrade)
	return v.Number != 0
}

// DNSRefresh returns how often proxies resolve names whose DNS answers have no time to live.
func (t *Settings) DNSRefresh(r store.Reader) time.Duration {
	if v, ok := t.rows.Get(r, dnsRefresh); ok {
		return time.Duration(v.Number)
	}
	return defaultDNSRefresh
}

// AllByLocality reports whether the choice of endpoints of every service may depend on where the client runs. It also returns the
// labels in the failover priorities of the mesh.
func (t *Settings) AllByLocality(r store.Reader) (labels []string, all bool) {
	locality, zone := t.LocalityBalancing(r), t.ZoneBalancing(r)
	for _, label := range append(append([]string{}, locality.GetFailoverPriority()...), zone.GetFailoverPriority()...) {
		if !strings.Contains(label, "=") {
			labels = append(labels, label)
		}
	}
	return labels, t.MeshByLocality(r)
}

func message[M proto.Message](t *Settings, r store.Reader, s Setting) M {
	v, _ := t.rows.Get(r, s)
	m, _ := v.Message.(M)
	return m
}
