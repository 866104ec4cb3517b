// Package rules says which packets are captured, as one typed set of rules for each IP version.
//
// Build is a pure function of the settings, and the set is the same for every back end. Everything is in chains of known names,
// and a back end adds only jumps to these chains elsewhere. So the rules can be recognised later, also without the settings
// that they were made with. The package starts no goroutines.
package rules

import (
	"net/netip"

	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// Family is a version of IP.
type Family int

// The versions of IP.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Table is one of the tables that a packet passes, in this order.
type Table string

// The tables: before connections are tracked, where packets are marked, and where addresses are rewritten.
const (
	Raw    Table = "raw"
	Mangle Table = "mangle"
	NAT    Table = "nat"
)

// Tables are all tables.
var Tables = []Table{Raw, Mangle, NAT}

// Hook is where the packets of a table come from: from outside, or from a process of this network namespace.
type Hook string

// The hooks.
const (
	Prerouting Hook = "PREROUTING"
	Output     Hook = "OUTPUT"
)

// Names of chains. A chain that Istio has too has Istio's name, which operators know.
const (
	inboundChain    = "ISTIO_INBOUND"
	outboundChain   = "ISTIO_OUTPUT"
	redirectChain   = "ISTIO_REDIRECT"
	inRedirectChain = "ISTIO_IN_REDIRECT"
	divertChain     = "ISTIO_DIVERT"
	tproxyChain     = "ISTIO_TPROXY"
	dropChain       = "ISTIO_DROP"
	outputDNSChain  = "ISTIO_OUTPUT_DNS"
	virtualChain    = "ISTIO_VIRTUAL"
	groupsChain     = "ISTIO_GROUPS"
)

// Names are all names of chains that a capture may have made, in any table.
var Names = []string{inboundChain, outboundChain, redirectChain, inRedirectChain, divertChain, tproxyChain, dropChain, outputDNSChain, virtualChain, groupsChain}

// Protocol is the protocol of a packet. Empty means any.
type Protocol string

// The protocols that rules distinguish.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// State is the state of a packet in connection tracking. Empty means any.
type State string

// The states that rules distinguish.
const (
	Invalid State = "INVALID"
	Known   State = "RELATED,ESTABLISHED"
)

// Address is a condition on an address. The zero value is no condition.
type Address struct {
	Range netip.Prefix
	Not   bool
}

// OwnerKind is the property by which an owner is compared. Empty means that it is not compared.
type OwnerKind string

// The kinds of owners.
const (
	User  OwnerKind = "uid"
	Group OwnerKind = "gid"
)

// Owner is a condition on the user or group of the process that sends a packet. The zero value is no condition.
type Owner struct {
	Kind OwnerKind
	IDs  settings.IDs
	Not  bool
}

// Match is a list of conditions that a packet must meet, all of them.
type Match struct {
	In, Out             string // interface
	Source, Destination Address
	Protocol            Protocol
	From, To            []settings.Ports
	NotTo               []uint16 // none of these ports
	State               State
	Mark, NotMark       uint32 // of the packet; 0 is no condition
	ConnMark            uint32 // of the connection
	Owner               Owner
}

// Kind is the kind of an action.
type Kind int

// Jump continues in a chain and comes back at its end. Return goes back to the chain before. Accept and DropPacket end the way
// through the table. ToPort sends the packet to a port of this host. ToSocket gives it to a transparent listener, and drops it if
// there is none. SetMark sets the mark of the packet, SaveMark copies it to the connection, and RestoreMark copies the mark of
// the connection to the packet. SetZone sets the zone of connection tracking.
const (
	Jump Kind = iota
	Return
	Accept
	DropPacket
	ToPort
	ToSocket
	SetMark
	SaveMark
	RestoreMark
	SetZone
)

// Action is the action of a rule on a packet.
type Action struct {
	Kind  Kind
	Chain string // Jump
	Port  uint16 // ToPort, ToSocket
	Value uint32 // the mark of SetMark and ToSocket, the zone of SetZone
}

// Rule applies an action to packets that match.
type Rule struct {
	Match
	Action
}

// Chain is a list of rules. The first that matches and ends the way of the packet decides.
type Chain struct {
	Name  string
	Rules []Rule
}

// Entry is a jump from a hook to a chain.
type Entry struct {
	Hook  Hook
	First bool // before the rules of other programs, or else after them
	Rule
}

// Part is the part of a set for one table.
type Part struct {
	Table   Table
	Entries []Entry
	Chains  []Chain
}

// Set is all rules for one version of IP. Parts that have no chain are left out.
type Set struct {
	Family Family
	Parts  []Part
}

func to(chain string) Action        { return Action{Kind: Jump, Chain: chain} }
func mark(value uint32) Action      { return Action{Kind: SetMark, Value: value} }
func zone(value uint32) Action      { return Action{Kind: SetZone, Value: value} }
func redirectTo(port uint16) Action { return Action{Kind: ToPort, Port: port} }
func back() Action                  { return Action{Kind: Return} }

// one is a list of one port.
func one(port uint16) []settings.Ports { return []settings.Ports{{From: port, To: port}} }

// within and outside are conditions on addresses.
func within(p netip.Prefix) Address  { return Address{Range: p.Masked()} }
func outside(p netip.Prefix) Address { return Address{Range: p.Masked(), Not: true} }

// of returns the ranges of a version of IP.
func (f Family) of(ranges []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range ranges {
		if r.Addr().Is4() == (f == IPv4) {
			out = append(out, r)
		}
	}
	return out
}

// Everywhere is the range of all addresses.
func (f Family) Everywhere() netip.Prefix {
	if f == IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// local is the address of the loopback interface that processes use to call each other.
func (f Family) local() netip.Prefix {
	if f == IPv4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 32)
	}
	return netip.PrefixFrom(netip.IPv6Loopback(), 128)
}

// Passthrough is the source address of connections that the proxy makes to its own application.
func (f Family) Passthrough() netip.Prefix {
	if f == IPv4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 6}), 32)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{15: 6}), 128)
}
