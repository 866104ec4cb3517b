package rules

import "github.com/pilotmesh/pilot/internal/agent/capture/settings"

// mangle drops invalid packets, and marks the packets for transparent listeners.
func (b builder) mangle() Part {
	p := Part{Table: Mangle}
	transparent := b.inbound() && b.Mode == settings.TProxy
	if b.DropInvalid {
		var drop []Rule
		if transparent {
			for _, name := range b.ExcludeInterfaces {
				drop = append(drop, Rule{Match{In: name}, back()})
			}
		}
		p.Entries = append(p.Entries, Entry{Prerouting, false, Rule{Match{State: Invalid}, to(dropChain)}})
		p.Chains = append(p.Chains, Chain{dropChain, append(drop, Rule{Match{}, Action{Kind: DropPacket}})})
	}
	if !transparent {
		return p
	}
	p.Entries = append(p.Entries,
		Entry{Prerouting, false, Rule{Match{Protocol: TCP}, to(inboundChain)}},
		Entry{Output, false, Rule{Match{Protocol: TCP}, to(outboundChain)}})
	socket := Action{Kind: ToSocket, Port: b.InboundPort, Value: b.Mark}
	p.Chains = append(p.Chains,
		Chain{inboundChain, b.transparentInbound()},
		Chain{divertChain, []Rule{{Match{}, mark(b.Mark)}, {Match{}, Action{Kind: Accept}}}},
		Chain{tproxyChain, []Rule{{Match{Destination: outside(b.loopback()), Protocol: TCP}, socket}}},
		Chain{outboundChain, b.transparentOutbound()})
	return p
}

// transparentInbound gives inbound connections to the listener, and leaves out connections of the workload to itself, except
// connections that the proxy makes for the application.
func (b builder) transparentInbound() []Rule {
	var out []Rule
	for _, name := range b.ExcludeInterfaces {
		out = append(out, Rule{Match{In: name}, back()})
	}
	for _, name := range b.VirtualInterfaces {
		out = append(out, Rule{Match{In: name}, back()})
	}
	out = append(out,
		// The proxy called the application from the address of its caller: the answers must find the way back to the proxy.
		Rule{Match{Protocol: TCP, Mark: b.Mark}, Action{Kind: SaveMark}},
		Rule{Match{Protocol: TCP, Mark: b.Mark}, back()},
		Rule{Match{In: "lo", Source: within(b.family.Passthrough()), Protocol: TCP}, back()},
		Rule{Match{In: "lo", Protocol: TCP, NotMark: settings.OutboundMark}, back()},
		Rule{Match{Protocol: TCP, To: one(b.TunnelPort)}, back()})
	return append(out, b.inboundPorts(
		Rule{Match{Protocol: TCP, State: Known}, to(divertChain)},
		Rule{Match{Protocol: TCP}, to(tproxyChain)})...)
}

// transparentOutbound marks packets of the proxy to its own workload, and answers to packets that it sent from the address of a caller.
func (b builder) transparentOutbound() []Rule {
	var out []Rule
	for _, name := range b.ExcludeInterfaces {
		out = append(out, Rule{Match{Out: name}, back()})
	}
	out = append(out, Rule{Match{Out: "lo", Protocol: TCP, Mark: b.Mark}, back()})
	for _, o := range b.owners() {
		out = append(out, Rule{Match{Out: "lo", Destination: outside(b.loopback()), Protocol: TCP, Owner: o}, mark(settings.OutboundMark)})
	}
	return append(out, Rule{Match{Protocol: TCP, ConnMark: b.Mark}, Action{Kind: RestoreMark}})
}
