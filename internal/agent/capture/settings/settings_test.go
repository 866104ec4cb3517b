package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// host is a machine with IPv4, a user envoy whose group has another number, and a group web.
func host() Host {
	return Host{
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fe80::1")},
		Resolv: func() ([]byte, error) {
			return []byte("search x\nnameserver 10.96.0.10\nnameserver fd00::10%eth0\n"), nil
		},
		Port: func(service string) (uint16, error) {
			if service == "http" {
				return 80, nil
			}
			return 0, fmt.Errorf("there is no service %q", service)
		},
		User: func(name string) (uint32, uint32, error) {
			if name == "envoy" {
				return 1600, 1601, nil
			}
			return 0, 0, fmt.Errorf("there is no user %q", name)
		},
		Group: func(name string) (uint32, error) {
			if name == "web" {
				return 3000, nil
			}
			return 0, fmt.Errorf("there is no group %q", name)
		},
	}
}

// resolve resolves a line of variables and flags.
func resolve(line string, h Host) (Settings, Options, error) {
	set := pflag.NewFlagSet("capture", pflag.ContinueOnError)
	flags := NewFlags(set)
	var environ, args []string
	for _, w := range strings.Fields(line) {
		if len(args) == 0 && strings.Contains(w, "=") && !strings.HasPrefix(w, "-") {
			environ = append(environ, w)
		} else {
			args = append(args, w)
		}
	}
	if err := errors.Join(set.Parse(args), flags.FromEnvironment(environ)); err != nil {
		return Settings{}, Options{}, err
	}
	return flags.Resolve(h)
}

// TestRefused: values that make no sense are refused, and the error names flag and value.
func TestRefused(t *testing.T) {
	many := make([]string, maxGroups+1)
	for i := range many {
		many[i] = fmt.Sprint(5000 + i)
	}
	for line, want := range map[string]string{
		"-p 70000":                     `--envoy-port: "70000"`,
		"-p 0":                         `--envoy-port: "0"`,
		"-z http":                      `--inbound-capture-port: "http"`,
		"-e -1":                        `--inbound-tunnel-port: "-1"`,
		"-b 80,gopher":                 `--istio-inbound-ports: there is no service "gopher"`,
		"-b 80,*":                      `--istio-inbound-ports: "*"`,
		"-b 90:80":                     `--istio-inbound-ports: "90:80"`,
		"-b * -d 70000":                `--istio-local-exclude-ports: "70000"`,
		"-o -5":                        `--istio-local-outbound-ports-exclude: "-5"`,
		"-q 1:":                        `--istio-outbound-ports: "1:"`,
		"-i everything":                `--istio-service-cidr: "everything"`,
		"-i 10.0.0.1":                  `--istio-service-cidr: "10.0.0.1"`,
		"-i ::ffff:10.0.0.0/104":       `--istio-service-cidr: "::ffff:10.0.0.0/104"`,
		"-x *":                         `--istio-service-exclude-cidr: "*"`,
		"-m NONE":                      `--istio-inbound-interception-mode: there is no "NONE"`,
		"-t 0":                         `--istio-inbound-tproxy-mark: "0"`,
		"-t 1338":                      `--istio-inbound-tproxy-mark: "1338"`,
		"-r 255":                       `--istio-inbound-tproxy-route-table: "255"`,
		"-r main":                      `--istio-inbound-tproxy-route-table: "main"`,
		"-u stranger":                  `--proxy-uid: there is no user "stranger"`,
		"-u 4294967295":                `--proxy-uid: "4294967295"`,
		"-u 5-1":                       `--proxy-uid: "5-1"`,
		"-g strangers":                 `--proxy-gid: there is no group "strangers"`,
		"-c a/b":                       `--istio-exclude-interfaces: "a/b"`,
		"-c 0123456789abcdef":          `--istio-exclude-interfaces: "0123456789abcdef"`,
		"-k --flag":                    `--kube-virt-interfaces: "--flag"`,
		"--force-iptables-binary bpf":  `--force-iptables-binary: there is no "bpf"`,
		"--probe-timeout 0s":           `--probe-timeout`,
		"DRY_RUN=perhaps":              `DRY_RUN=perhaps cannot be used: it is the flag --dry-run`,
		"ISTIO_INBOUND_PORTS=70000 -n": `--istio-inbound-ports: "70000"`,
		"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=127.0.0.0/7 -n":       `ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "127.0.0.0/7"`,
		"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=10.0.0.0/8 -n":        `ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: "10.0.0.0/8"`,
		"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=nobody -n":          `ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE: there is no group "nobody"`,
		"ISTIO_OUTBOUND_OWNER_GROUPS=" + strings.Join(many, ","): "ISTIO_OUTBOUND_OWNER_GROUPS: 65 groups are too many",
		"--native-nftables --force-iptables-binary nft":          "--native-nftables uses no iptables",
	} {
		if _, _, err := resolve(line, host()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", line, err, want)
		}
	}
}

func TestRefusedHost(t *testing.T) {
	bare := host()
	bare.Addresses = bare.Addresses[:1]
	if _, _, err := resolve("", bare); err == nil || !strings.Contains(err.Error(), "only loopback") {
		t.Errorf("a host without an address: %v", err)
	}
	lost := host()
	lost.Resolv = func() ([]byte, error) { return nil, errors.New("no such file") }
	if _, _, err := resolve("--redirect-dns", lost); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a host without resolv.conf: %v", err)
	}
	if s, _, err := resolve("--redirect-dns --capture-all-dns", lost); err != nil || !s.DNS.All {
		t.Errorf("all queries without resolv.conf: %+v, %v", s.DNS, err)
	}
}

// TestMeaning: flags and variables yield the expected settings.
func TestMeaning(t *testing.T) {
	id := func(n ...uint32) (out []IDs) {
		for _, i := range n {
			out = append(out, IDs{i, i})
		}
		return out
	}
	for _, c := range []struct {
		line string
		what func(Settings) any
		want any
	}{
		{"", func(s Settings) any { return s.UIDs }, id(1337)},
		{"ENVOY_USER=envoy", func(s Settings) any { return s.UIDs }, id(1600)},
		{"ENVOY_USER=envoy", func(s Settings) any { return s.GIDs }, id(1600)},
		{"-u envoy", func(s Settings) any { return s.GIDs }, id(1601)},
		{"-u 7,8,7", func(s Settings) any { return s.GIDs }, id(7, 8)},
		{"-u 7 -g web,5-6", func(s Settings) any { return s.GIDs }, []IDs{{3000, 3000}, {5, 6}}},
		{"-b *", func(s Settings) any { return s.InboundPorts }, PortList{All: true}},
		{"-b 80,,8080:8090,", func(s Settings) any { return s.InboundPorts.List }, []Ports{{80, 80}, {8080, 8090}}},
		{"-b http,90", func(s Settings) any { return s.InboundPorts.List }, []Ports{{80, 80}, {90, 90}}},
		{"ISTIO_INBOUND_PORTS=90 -b 80", func(s Settings) any { return s.InboundPorts.List }, []Ports{{80, 80}}},
		{"ENVOY_PORT=tcp://10.0.0.1:80", func(s Settings) any { return s.OutboundPort }, uint16(15001)},
		{"INVALID_DROP=true", func(s Settings) any { return s.DropInvalid }, true},
		{"ISTIO_META_DNS_CAPTURE=true", func(s Settings) any { return s.DNS.Servers }, []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::10")}},
		{"ISTIO_OUTBOUND_OWNER_GROUPS= -n", func(s Settings) any { return s.Groups }, GroupFilter{}},
		{"ISTIO_OUTBOUND_OWNER_GROUPS=web -n", func(s Settings) any { return s.Groups }, GroupFilter{Only: id(3000)}},
		{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=web -n", func(s Settings) any { return s.Groups }, GroupFilter{All: true, Except: id(3000)}},
		{"-m TPROXY -t 0x10", func(s Settings) any { return [2]any{s.Mode, s.Mark} }, [2]any{TProxy, uint32(16)}},
		{"--capture-all-dns", func(s Settings) any { return len(s.Remarks) }, 1},
	} {
		s, _, err := resolve(c.line, host())
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
		} else if got := c.what(s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.line, got, c.want)
		}
	}
}

// TestFamilies: IPv6 is captured where there is no IPv4, or where both are asked for.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		addresses, flags string
		v6               bool
	}{
		{"10.1.1.1", "", false}, {"10.1.1.1", "--dual-stack", false}, {"fd00::1", "", true}, {"fd00::1 10.1.1.1", "", false},
		{"fd00::1 10.1.1.1", "--dual-stack", true}, {"10.1.1.1 fe80::1", "--dual-stack", false}, {"fd00::1 10.1.1.1", "ISTIO_DUAL_STACK=true", true},
	} {
		h := host()
		h.Addresses = nil
		for _, a := range strings.Fields(c.addresses) {
			h.Addresses = append(h.Addresses, netip.MustParseAddr(a))
		}
		if s, _, err := resolve(c.flags, h); err != nil || s.IPv6 != c.v6 || !s.IPv4 {
			t.Errorf("%s with %q: IPv4 %v, IPv6 %v, %v; want IPv6 %v", c.addresses, c.flags, s.IPv4, s.IPv6, err, c.v6)
		}
	}
}

// TestServersOfIPv6: name servers whose queries are not captured, because only IPv4 is, are named.
func TestServersOfIPv6(t *testing.T) {
	const remark = "does not capture queries for the servers [fd00::10]"
	for _, c := range []struct {
		servers, flags string
		remarked       bool
	}{
		{"fd00::10", "", true}, {"10.96.0.10 fd00::10", "", true}, {"10.96.0.10", "", false}, {"fd00::10", "--dual-stack", false}, {"fd00::10", "--capture-all-dns", false},
	} {
		h := host()
		h.Addresses = []netip.Addr{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00::1")}
		h.Resolv = func() ([]byte, error) {
			return []byte("nameserver " + strings.ReplaceAll(c.servers, " ", "\nnameserver ")), nil
		}
		s, _, err := resolve("--redirect-dns "+c.flags, h)
		if got := strings.Contains(strings.Join(s.Remarks, "\n"), remark); err != nil || got != c.remarked {
			t.Errorf("%s with %q: %q, %v", c.servers, c.flags, s.Remarks, err)
		}
	}
}

// TestCleanupOptions: a flag of the capture that makes no sense does not keep it from being removed.
func TestCleanupOptions(t *testing.T) {
	set := pflag.NewFlagSet("clean", pflag.ContinueOnError)
	flags := NewFlags(set)
	if err := set.Parse([]string{"-b", "nonsense", "-m", "nonsense"}); err != nil {
		t.Fatal(err)
	}
	if _, mark, table, err := flags.CleanupOptions(); err != nil || mark != 1337 || table != 133 {
		t.Errorf("CleanupOptions = mark %d, table %d, %v", mark, table, err)
	}
}
