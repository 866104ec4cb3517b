package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// defaultID is the user and group of the proxy where the proxy's user is not known.
const defaultID = 1337

// NetworkNamespace is the path of the network namespace to work in, or "". Host must describe that namespace.
func (f *Flags) NetworkNamespace() string { return f.networkNamespace }

// Resolve validates the flags.
func (f *Flags) Resolve(host Host) (Settings, Options, error) {
	o, err := f.options()
	if err != nil {
		return Settings{}, o, err
	}
	s := Settings{DropInvalid: f.dropInvalid}
	for _, step := range []func(*Settings) error{f.ranges, f.interfaces, f.transparent} {
		if err := step(&s); err != nil {
			return Settings{}, o, err
		}
	}
	for _, step := range []func(*Settings, Host) error{f.ports, f.owners, f.groupFilter, f.families, f.dns} {
		if err := step(&s, host); err != nil {
			return Settings{}, o, err
		}
	}
	if f.traceLogging {
		s.Remarks = append(s.Remarks, "--iptables-trace-logging has no effect: `nft monitor trace` and the target TRACE show the way of a packet")
	}
	return s, o, nil
}

// CleanupOptions validates only the flags that a clean-up depends on: it must not fail for a flag of the capture.
func (f *Flags) CleanupOptions() (Options, uint32, int, error) {
	o, err := f.options()
	o.Validate = false
	var s Settings
	if err == nil && f.transparent(&s) != nil {
		s.Mark, s.Table = defaultID, 133
	}
	return o, s.Mark, s.Table, err
}

func (f *Flags) options() (Options, error) {
	o := Options{
		DryRun: f.dryRun, SkipApply: f.skipApply, Validate: f.validate, Reconcile: f.reconcile, CleanupOnly: f.cleanupOnly,
		Force: f.force, Native: f.native, Binary: f.binary, NetworkNamespace: f.networkNamespace, OwnLock: f.cniMode,
		ProbePort: f.probePort, ProbeTimeout: f.probeTimeout,
	}
	switch {
	case o.Binary != "" && o.Binary != "nft" && o.Binary != "legacy":
		return o, fmt.Errorf("--force-iptables-binary: there is no %q: use nft or legacy", o.Binary)
	case o.Native && o.Binary != "":
		return o, errors.New("--native-nftables uses no iptables: leave out --force-iptables-binary")
	case o.ProbeTimeout <= 0 || o.ProbePort == 0:
		return o, errors.New("--probe-timeout and --iptables-probe-port must be positive")
	}
	return o, nil
}

func (f *Flags) ports(s *Settings, host Host) error {
	for _, p := range []struct {
		flag, value string
		to          *uint16
	}{{"envoy-port", f.outboundPort, &s.OutboundPort}, {"inbound-capture-port", f.inboundPort, &s.InboundPort}, {"inbound-tunnel-port", f.tunnelPort, &s.TunnelPort}} {
		n, err := strconv.ParseUint(p.value, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("--%s: %q is no port: give a number from 1 to 65535", p.flag, p.value)
		}
		*p.to = uint16(n)
	}
	var err error
	if s.InboundPorts, err = parsePortList(f.inboundPorts, host.Port); err != nil {
		return fmt.Errorf("--istio-inbound-ports: %w", err)
	}
	for _, p := range []struct {
		flag, value string
		to          *[]Ports
	}{
		{"istio-local-exclude-ports", f.inboundPortsExclude, &s.InboundPortsExclude},
		{"istio-outbound-ports", f.outboundPorts, &s.OutboundPorts},
		{"istio-local-outbound-ports-exclude", f.outboundPortsExclude, &s.OutboundPortsExclude},
	} {
		if *p.to, err = parsePorts(p.value, host.Port); err != nil {
			return fmt.Errorf("--%s: %w", p.flag, err)
		}
	}
	return nil
}

func (f *Flags) ranges(s *Settings) (err error) {
	if s.OutboundRanges, err = parseRangeList(f.outboundRanges); err != nil {
		return fmt.Errorf("--istio-service-cidr: %w", err)
	}
	if s.OutboundRangesExclude, err = parseRanges(f.outboundRangesExclude); err != nil {
		return fmt.Errorf("--istio-service-exclude-cidr: %w", err)
	}
	p, err := netip.ParsePrefix(f.loopback)
	if err != nil || !p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8 {
		return fmt.Errorf("%s: %q is no range of IPv4 loopback addresses with a mask from /8 to /32", envLoopback, f.loopback)
	}
	s.Loopback = p.Masked()
	return nil
}

func (f *Flags) interfaces(s *Settings) (err error) {
	if s.ExcludeInterfaces, err = parseInterfaces(f.excludeInterfaces); err != nil {
		return fmt.Errorf("--istio-exclude-interfaces: %w", err)
	}
	if s.VirtualInterfaces, err = parseInterfaces(f.virtualInterfaces); err != nil {
		return fmt.Errorf("--kube-virt-interfaces: %w", err)
	}
	return nil
}

// transparent reads the settings of mode TPROXY. Mark and table are read in the other mode as well, because a clean-up needs them.
func (f *Flags) transparent(s *Settings) error {
	switch s.Mode = Mode(f.mode); s.Mode {
	case "":
		s.Mode = Redirect
	case Redirect, TProxy:
	default:
		return fmt.Errorf("--istio-inbound-interception-mode: there is no %q: use REDIRECT or TPROXY", f.mode)
	}
	mark, err := strconv.ParseUint(f.mark, 0, 32)
	if err != nil || mark == 0 || mark == OutboundMark {
		return fmt.Errorf("--istio-inbound-tproxy-mark: %q is no mark: give a positive number of 32 bits other than %d", f.mark, OutboundMark)
	}
	table, err := strconv.ParseUint(f.table, 0, 31)
	if err != nil || table == 0 || table >= 253 && table <= 255 {
		return fmt.Errorf("--istio-inbound-tproxy-route-table: %q is no routing table: give a positive number other than the tables of the system (253 to 255)", f.table)
	}
	s.Mark, s.Table = uint32(mark), int(table)
	return nil
}

// owners finds the users and groups of the proxy. A user given by name adds its group as well, if no group is given.
func (f *Flags) owners(s *Settings, host Host) (err error) {
	userID := func(name string) (uint32, error) {
		uid, _, err := host.User(name)
		return uid, err
	}
	uids, gids := f.uid, f.gid
	if uids == "" {
		uids = strconv.Itoa(defaultID)
		if uid, _, err := host.User(f.user); err == nil {
			uids = strconv.FormatUint(uint64(uid), 10)
		}
	}
	if s.UIDs, err = parseIDs(uids, userID); err != nil {
		return fmt.Errorf("--proxy-uid: %w", err)
	}
	group := host.Group
	if gids == "" {
		gids = uids
		group = func(name string) (uint32, error) {
			if gid, err := host.Group(name); err == nil {
				return gid, nil
			}
			_, gid, err := host.User(name)
			return gid, err
		}
	}
	if s.GIDs, err = parseIDs(gids, group); err != nil {
		return fmt.Errorf("--proxy-gid: %w", err)
	}
	return nil
}

func (f *Flags) groupFilter(s *Settings, host Host) (err error) {
	s.Groups.All = strings.TrimSpace(f.groups) == "*"
	if !s.Groups.All {
		if s.Groups.Only, err = parseIDs(f.groups, host.Group); err != nil {
			return fmt.Errorf("%s: %w", envGroups, err)
		}
		if n := len(s.Groups.Only); n > maxGroups {
			return fmt.Errorf("%s: %d groups are too many: give at most %d, or use %s", envGroups, n, maxGroups, envGroupsExclude)
		}
		if len(s.Groups.Only) == 0 {
			s.Remarks = append(s.Remarks, envGroups+" is empty: no outbound connections are captured")
		}
		return nil
	}
	if s.Groups.Except, err = parseIDs(f.groupsExclude, host.Group); err != nil {
		return fmt.Errorf("%s: %w", envGroupsExclude, err)
	}
	return nil
}

// families decides about IPv6: it is captured where the host has no address of IPv4, or where both are wanted.
func (f *Flags) families(s *Settings, host Host) error {
	var v4, v6 bool
	for _, a := range host.Addresses {
		if a = a.Unmap(); a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
			continue
		}
		v4, v6 = v4 || a.Is4(), v6 || a.Is6()
	}
	if !v4 && !v6 {
		return errors.New("this network namespace has only loopback and link-local addresses: run the capture when it has its own")
	}
	s.IPv4, s.IPv6 = true, v6 && (f.dualStack || !v4)
	return nil
}

func (f *Flags) dns(s *Settings, host Host) error {
	if !f.redirectDNS {
		if f.captureAllDNS {
			s.Remarks = append(s.Remarks, "--capture-all-dns has no effect without --redirect-dns")
		}
		return nil
	}
	if f.captureAllDNS {
		s.DNS = DNS{Capture: true, All: true}
		return nil
	}
	text, err := host.Resolv()
	if err != nil {
		return fmt.Errorf("--redirect-dns: the name servers are not known: %w; use --capture-all-dns", err)
	}
	servers := parseServers(text)
	if len(servers) == 0 {
		s.Remarks = append(s.Remarks, "--redirect-dns has no effect: /etc/resolv.conf names no server; use --capture-all-dns")
		return nil
	}
	s.DNS = DNS{Capture: true, Servers: servers}
	if !s.IPv6 {
		six := slices.DeleteFunc(slices.Clone(servers), netip.Addr.Is4)
		if len(six) > 0 {
			s.Remarks = append(s.Remarks, fmt.Sprintf("--redirect-dns does not capture queries for the servers %v, because only IPv4 is captured; use --dual-stack, or name servers with IPv4 addresses", six))
		}
	}
	return nil
}
