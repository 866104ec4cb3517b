// Package settings turns the flags and environment variables of the capture commands into validated values.
//
// It owns the names and defaults of the flags, and the syntax of their values: lists of ports, of CIDR ranges, of users, groups
// and interfaces. Resolve is pure: it gets the facts about the machine in Host. The package starts no goroutines.
package settings

import (
	"net/netip"
	"time"
)

// Mode is how inbound connections reach the proxy.
type Mode string

// Redirect rewrites the destination of inbound connections, and the proxy asks the kernel for the original one. TProxy leaves
// source and destination as they are, and needs a proxy with transparent listeners.
const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
)

// OutboundMark is the mark of packets from the proxy to its own workload in mode TProxy: they have to go through the inbound
// listener, unlike packets of the application to itself.
const OutboundMark = 1338

// DNSPort is the port of the agent's DNS server.
const DNSPort = 15053

// Ports is a range of ports. A single port is a range from itself to itself.
type Ports struct{ From, To uint16 }

// IDs is a range of user or group IDs. A single ID is a range from itself to itself.
type IDs struct{ From, To uint32 }

// PortList is a list of ports, or all of them.
type PortList struct {
	All  bool
	List []Ports
}

// RangeList is a list of CIDR ranges of both IP versions, or all addresses.
type RangeList struct {
	All  bool
	List []netip.Prefix
}

// GroupFilter selects by group whose outbound connections are captured: all groups except some, or only some.
type GroupFilter struct {
	All    bool
	Except []IDs // if All
	Only   []IDs // if not All
}

// DNS says which queries the agent answers.
type DNS struct {
	Capture bool
	All     bool         // queries to any server, or else those to Servers
	Servers []netip.Addr // of resolv.conf
}

// Settings are the validated settings of a capture.
type Settings struct {
	OutboundPort, InboundPort, TunnelPort uint16 // of the proxy

	UIDs, GIDs []IDs // of the proxy: its own connections are not captured

	Mode  Mode
	Mark  uint32 // mode TProxy: the mark of connections that the proxy makes from the address of the caller
	Table int    // mode TProxy: the routing table for packets with the mark

	InboundPorts        PortList
	InboundPortsExclude []Ports

	OutboundPorts         []Ports
	OutboundPortsExclude  []Ports
	OutboundRanges        RangeList
	OutboundRangesExclude []netip.Prefix

	Groups            GroupFilter
	Loopback          netip.Prefix // IPv4 destinations on the loopback interface that are the application's own
	ExcludeInterfaces []string
	VirtualInterfaces []string // of virtual machines: packets from there are outbound traffic

	DNS         DNS
	DropInvalid bool
	IPv4, IPv6  bool

	Remarks []string // for the user: which settings have no effect, and why
}

// Options says how to go about it.
type Options struct {
	DryRun, SkipApply, Validate   bool
	Reconcile, CleanupOnly, Force bool
	Native                        bool   // nftables without iptables
	Binary                        string // "nft", "legacy", or "" to choose by the installed rules
	NetworkNamespace              string // a path, or "" for the present one
	OwnLock                       bool   // the file system is the host's: do not share its lock of iptables
	ProbePort                     uint16
	ProbeTimeout                  time.Duration
}

// Host has the facts about the machine that Resolve needs.
type Host struct {
	Addresses []netip.Addr // of all interfaces
	Resolv    func() ([]byte, error)
	Port      func(service string) (uint16, error)
	User      func(name string) (uid, gid uint32, err error)
	Group     func(name string) (gid uint32, err error)
}
