package config

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Wasm are the settings for fetching WebAssembly modules.
type Wasm struct {
	// Insecure are the servers that need no TLS and no valid certificate (WASM_INSECURE_REGISTRIES), and Blocked the addresses that are not
	// connected to (BLOCKED_CIDRS_IN_WASM_FETCH).
	Insecure []string
	Blocked  []netip.Prefix
	// Expiry is how long a module is kept after Envoy last needed it (WASM_MODULE_EXPIRY), and Purge how often expired modules are
	// removed (WASM_PURGE_INTERVAL).
	Expiry, Purge time.Duration
	// Silence is how long a server may send nothing (WASM_HTTP_REQUEST_TIMEOUT), and Retries how many more attempts there are
	// (WASM_HTTP_REQUEST_MAX_RETRIES).
	Silence time.Duration
	Retries int
}

// loadWasm reads the settings for fetching modules.
func (s *Settings) loadWasm(errs *problems) {
	env := func(name, otherwise string) string {
		if v := s.lookup(name); v != "" {
			return v
		}
		return otherwise
	}
	list := func(name string) (all []string) {
		for text := range strings.SplitSeq(env(name, ""), ",") {
			if text = strings.TrimSpace(text); text != "" {
				all = append(all, text)
			}
		}
		return all
	}
	duration := func(name, otherwise string, least time.Duration) time.Duration {
		text := env(name, otherwise)
		d, err := time.ParseDuration(text)
		if err != nil || d < least {
			errs.add(name, "%q is not a duration of at least %v, such as %s", text, least, otherwise)
		}
		return d
	}
	w := &s.Wasm
	w.Insecure = list("WASM_INSECURE_REGISTRIES")
	for _, server := range w.Insecure {
		if strings.Contains(server, "/") {
			errs.add("WASM_INSECURE_REGISTRIES", "%q is not a host, or host:port; write no scheme and no path", server)
		}
	}
	for _, text := range list("BLOCKED_CIDRS_IN_WASM_FETCH") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs.add("BLOCKED_CIDRS_IN_WASM_FETCH", "%q is not a range of addresses such as 10.0.0.0/8", text)
			continue
		}
		w.Blocked = append(w.Blocked, p.Masked())
	}
	w.Expiry = duration("WASM_MODULE_EXPIRY", "24h", time.Second)
	w.Purge = duration("WASM_PURGE_INTERVAL", "1h", time.Second)
	w.Silence = duration("WASM_HTTP_REQUEST_TIMEOUT", "15s", 100*time.Millisecond)
	const retries = "WASM_HTTP_REQUEST_MAX_RETRIES"
	var err error
	if w.Retries, err = strconv.Atoi(env(retries, "5")); err != nil || w.Retries < 0 || w.Retries > 100 {
		errs.add(retries, "%q is not a number up to 100", env(retries, ""))
	}
}
