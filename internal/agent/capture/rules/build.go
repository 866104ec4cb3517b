package rules

import (
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// Zones of connection tracking for DNS over UDP. The query of an application and the agent's query to the same server may have
// the same addresses and ports: without zones they would be one connection.
const (
	agentZone       = 1
	applicationZone = 2
)

// dnsPort is the port of name servers.
const dnsPort = 53

// builder makes the set for one version of IP.
type builder struct {
	settings.Settings
	family Family
}

// Build returns the rules for a version of IP.
func Build(s settings.Settings, family Family) Set {
	b := builder{s, family}
	set := Set{Family: family}
	for _, p := range []Part{b.raw(), b.mangle(), b.nat()} {
		if len(p.Chains) > 0 {
			set.Parts = append(set.Parts, p)
		}
	}
	return set
}

// Sets returns the rules for the versions of IP that the settings want.
func Sets(s settings.Settings) []Set {
	var out []Set
	if s.IPv4 {
		out = append(out, Build(s, IPv4))
	}
	if s.IPv6 {
		out = append(out, Build(s, IPv6))
	}
	return out
}

// loopback is the range of destinations on the loopback interface that are the application's own.
func (b builder) loopback() netip.Prefix {
	if b.family == IPv4 {
		return b.Loopback
	}
	return b.family.local()
}

// inbound reports whether inbound connections are captured.
func (b builder) inbound() bool { return b.InboundPorts.All || len(b.InboundPorts.List) > 0 }

// owners are conditions that a packet comes from the proxy, one for each of its users, then one for each of its groups.
func (b builder) owners() []Owner {
	var out []Owner
	for _, id := range b.UIDs {
		out = append(out, Owner{Kind: User, IDs: id})
	}
	for _, id := range b.GIDs {
		out = append(out, Owner{Kind: Group, IDs: id})
	}
	return out
}

// nat rewrites the destinations of captured connections.
func (b builder) nat() Part {
	p := Part{Table: NAT}
	if len(b.VirtualInterfaces) > 0 {
		for _, name := range b.VirtualInterfaces {
			p.Entries = append(p.Entries, Entry{Prerouting, true, Rule{Match{In: name}, to(virtualChain)}})
		}
		p.Chains = append(p.Chains, Chain{virtualChain, b.virtual()})
	}
	if b.inbound() && b.Mode == settings.Redirect {
		p.Entries = append(p.Entries, Entry{Prerouting, false, Rule{Match{Protocol: TCP}, to(inboundChain)}})
		p.Chains = append(p.Chains, Chain{inboundChain, append(b.notInbound(), b.inboundPorts(Rule{Match{Protocol: TCP}, to(inRedirectChain)})...)})
	}
	p.Entries = append(p.Entries, Entry{Output, false, Rule{Match{}, to(outboundChain)}})
	p.Chains = append(p.Chains,
		Chain{outboundChain, b.outbound()},
		Chain{redirectChain, []Rule{{Match{Protocol: TCP}, redirectTo(b.OutboundPort)}}},
		Chain{inRedirectChain, []Rule{{Match{Protocol: TCP}, redirectTo(b.InboundPort)}}})
	if !b.Groups.All && len(b.Groups.Only) > 0 {
		p.Chains = append(p.Chains, Chain{groupsChain, b.others()})
	}
	if servers := b.servers(); len(servers) > 0 {
		p.Chains = append(p.Chains, Chain{outputDNSChain, queries(servers, redirectTo(settings.DNSPort), TCP, UDP)})
	}
	return p
}

// notInbound are the packets from outside that are not captured, whatever the port.
func (b builder) notInbound() []Rule {
	var out []Rule
	for _, name := range slices.Concat(b.ExcludeInterfaces, b.VirtualInterfaces) {
		out = append(out, Rule{Match{In: name}, back()})
	}
	return append(out, Rule{Match{Protocol: TCP, To: one(b.TunnelPort)}, back()})
}

// inboundPorts applies rules to the inbound ports to capture.
func (b builder) inboundPorts(then ...Rule) []Rule {
	var out []Rule
	if b.InboundPorts.All {
		for _, port := range b.InboundPortsExclude {
			out = append(out, Rule{Match{Protocol: TCP, To: []settings.Ports{port}}, back()})
		}
		return append(out, then...)
	}
	for _, port := range b.InboundPorts.List {
		for _, r := range then {
			r.To = []settings.Ports{port}
			out = append(out, r)
		}
	}
	return out
}

// outbound decides about connections of processes. The order matters: exclusions, the calls of the proxy and of the
// application to themselves, DNS, and then destinations.
func (b builder) outbound() []Rule {
	var out []Rule
	for _, name := range b.ExcludeInterfaces {
		out = append(out, Rule{Match{Out: name}, back()})
	}
	out = append(out, b.excludedPorts()...)
	out = append(out, Rule{Match{Out: "lo", Source: within(b.family.Passthrough())}, back()})
	for _, o := range b.owners() {
		out = append(out, b.toItself(o)...)
		out = append(out, Rule{Match{Owner: o}, back()})
	}
	if b.Groups.All {
		for _, id := range b.Groups.Except {
			out = append(out, Rule{Match{Owner: Owner{Kind: Group, IDs: id}}, back()})
		}
		return append(out, b.others()...)
	}
	// One rule that excludes all processes outside of the groups would be too long for iptables.
	for _, id := range b.Groups.Only {
		out = append(out, Rule{Match{Owner: Owner{Kind: Group, IDs: id}}, to(groupsChain)})
	}
	return out
}

// others decides about connections of others than the proxy, to others than themselves.
func (b builder) others() []Rule {
	var out []Rule
	if len(b.servers()) > 0 {
		out = append(out, Rule{Match{}, to(outputDNSChain)})
	}
	out = append(out, Rule{Match{Destination: within(b.loopback())}, back()})
	return append(out, b.destinations()...)
}

func (b builder) excludedPorts() []Rule {
	var out []Rule
	for _, port := range b.OutboundPortsExclude {
		for _, protocol := range []Protocol{TCP, UDP} {
			out = append(out, Rule{Match{Protocol: protocol, To: []settings.Ports{port}}, back()})
		}
	}
	return out
}

// toItself decides about connections that stay on the loopback interface. Connections of the proxy to its own workload,
// which is then both client and server in the mesh, go through the inbound listener. Connections of other processes are not
// captured, unless a loopback range is to be. DNS servers on this host are left to the rules for DNS.
func (b builder) toItself(o Owner) []Rule {
	again := Match{Out: "lo", Destination: outside(b.loopback()), Protocol: TCP, NotTo: []uint16{b.TunnelPort}, Owner: o}
	dns := len(b.servers()) > 0
	if dns && o.Kind == User {
		again.NotTo = []uint16{dnsPort, b.TunnelPort}
	}
	out := []Rule{{again, to(inRedirectChain)}}
	if slices.ContainsFunc(b.OutboundRanges.List, func(p netip.Prefix) bool { return p.Addr().IsLoopback() }) {
		return out
	}
	o.Not = true
	others := Match{Out: "lo", Owner: o}
	if dns {
		others.Protocol, others.NotTo = TCP, []uint16{dnsPort}
	}
	return append(out, Rule{others, back()})
}

// destinations decides about connections by their address and port.
func (b builder) destinations() []Rule {
	var out []Rule
	for _, r := range b.family.of(b.OutboundRangesExclude) {
		out = append(out, Rule{Match{Destination: within(r)}, back()})
	}
	for _, port := range b.OutboundPorts {
		out = append(out, Rule{Match{Protocol: TCP, To: []settings.Ports{port}}, to(redirectChain)})
	}
	if b.OutboundRanges.All {
		return append(out, Rule{Match{}, to(redirectChain)})
	}
	for _, r := range b.family.of(b.OutboundRanges.List) {
		out = append(out, Rule{Match{Destination: within(r)}, to(redirectChain)})
	}
	return out
}

// virtual decides about packets from virtual machines: they are outbound traffic.
func (b builder) virtual() []Rule { return append(b.excludedPorts(), b.destinations()...) }

// servers are the name servers whose queries the agent answers.
func (b builder) servers() []netip.Prefix {
	if !b.DNS.Capture {
		return nil
	}
	if b.DNS.All {
		return []netip.Prefix{b.family.Everywhere()}
	}
	var out []netip.Prefix
	for _, a := range b.DNS.Servers {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return b.family.of(out)
}

// queries applies an action to queries for servers.
func queries(servers []netip.Prefix, then Action, protocols ...Protocol) []Rule {
	var out []Rule
	for _, protocol := range protocols {
		for _, s := range servers {
			out = append(out, Rule{Match{Destination: within(s), Protocol: protocol, To: one(dnsPort)}, then})
		}
	}
	return out
}

// raw puts DNS queries of applications and of the agent into separate zones.
func (b builder) raw() Part {
	servers := b.servers()
	if len(servers) == 0 {
		return Part{Table: Raw}
	}
	var output, inbound []Rule
	for _, o := range b.owners() {
		output = append(output,
			Rule{Match{Protocol: UDP, To: one(dnsPort), Owner: o}, zone(agentZone)},
			Rule{Match{Protocol: UDP, From: one(settings.DNSPort), Owner: o}, zone(applicationZone)})
	}
	output = append(output, queries(servers, zone(applicationZone), UDP)...)
	for _, s := range servers {
		inbound = append(inbound, Rule{Match{Source: within(s), Protocol: UDP, From: one(dnsPort)}, zone(agentZone)})
	}
	return Part{
		Table:   Raw,
		Entries: []Entry{{Prerouting, false, Rule{Match{}, to(inboundChain)}}, {Output, false, Rule{Match{}, to(outputDNSChain)}}},
		Chains:  []Chain{{inboundChain, inbound}, {outputDNSChain, output}},
	}
}
