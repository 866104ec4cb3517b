package config

import (
	"cmp"
	"net"
	"strconv"
	"time"
)

// DNS are the settings of the DNS proxy.
type DNS struct {
	// Capture is true if the agent answers the DNS queries of the workload (ISTIO_META_DNS_CAPTURE).
	Capture bool
	// Host and Port are where queries arrive (DNS_PROXY_ADDR). The host localhost means the loopback addresses of both IP versions.
	Host string
	Port uint16
	// Parallel asks all servers for a name that is not of the mesh at the same time (DNS_FORWARD_PARALLEL), and Timeout is how long they
	// may take (DNS_FORWARD_TIMEOUT).
	Parallel bool
	Timeout  time.Duration
	// ResolvConf is the file that names these servers (DNS_RESOLV_CONF).
	ResolvConf string
}

// loadDNS reads the settings of the DNS proxy.
func (s *Settings) loadDNS(errs *problems) {
	env := func(name, otherwise string) string {
		return cmp.Or(s.env[name], s.Proxy.GetProxyMetadata()[name], otherwise)
	}
	boolean := func(name string) bool {
		v, err := strconv.ParseBool(env(name, "false"))
		if err != nil {
			errs.add(name, "%q is neither true nor false", env(name, ""))
		}
		return v
	}
	d := &s.DNS
	d.Capture, d.Parallel = boolean("ISTIO_META_DNS_CAPTURE"), boolean("DNS_FORWARD_PARALLEL")
	d.ResolvConf = env("DNS_RESOLV_CONF", "/etc/resolv.conf")
	address := env("DNS_PROXY_ADDR", "localhost:15053")
	host, text, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || host == "" || portErr != nil || n == 0:
		errs.add("DNS_PROXY_ADDR", "%q is not host:port", address)
	case host != "localhost" && net.ParseIP(host) == nil:
		errs.add("DNS_PROXY_ADDR", "the host %q is neither localhost nor an IP address", host)
	}
	d.Host, d.Port = host, uint16(n)
	if d.Timeout, err = time.ParseDuration(env("DNS_FORWARD_TIMEOUT", "5s")); err != nil || d.Timeout < 10*time.Millisecond || d.Timeout > time.Minute {
		errs.add("DNS_FORWARD_TIMEOUT", "%q is not a duration between 10ms and 1m, such as 5s", env("DNS_FORWARD_TIMEOUT", ""))
	}
	for _, name := range []string{"DNS_PROXY_ADDR", "DNS_FORWARD_PARALLEL", "DNS_FORWARD_TIMEOUT", "DNS_RESOLV_CONF"} {
		if env(name, "") != "" && !d.Capture {
			s.warn("%s has no effect: the agent does not answer DNS queries; set ISTIO_META_DNS_CAPTURE=true", name)
		}
	}
}
