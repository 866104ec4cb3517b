package mesh

import (
	"iter"
	"strings"
)

// IsWildcard reports whether a host is a pattern: "*" or "*.suffix".
func IsWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// Covers reports whether a host or pattern covers a host or a narrower pattern. Every host covers itself.
func Covers(pattern, host string) bool {
	if pattern == host || pattern == "*" {
		return true
	}
	suffix, ok := strings.CutPrefix(pattern, "*")
	return ok && len(host) > len(suffix) && strings.HasSuffix(host, suffix) && !(IsWildcard(host) && len(host) <= len(pattern))
}

// NarrowestFirst yields a host and then the patterns that cover it, the narrowest first.
func NarrowestFirst(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if yield(host) {
			Patterns(host)(yield)
		}
	}
}

// Patterns yields the patterns other than host itself that cover it, narrowest first: for a.b.c these are *.b.c, *.c and *.
func Patterns(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if host == "*" {
			return
		}
		rest := strings.TrimPrefix(host, "*.")
		for {
			_, tail, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			rest = tail
			if !yield("*." + rest) {
				return
			}
		}
		yield("*")
	}
}

// FullHost returns the fully qualified name, in lower case, of a host in an object of a namespace. A name without a dot is a
// service of this namespace.
func FullHost(host, namespace, domain string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || IsWildcard(host) || strings.ContainsAny(host, ".:") {
		return host
	}
	return host + "." + namespace + ".svc." + domain
}

// ClusterHost splits a host of the form name.namespace.svc.domain.
func ClusterHost(host, domain string) (name, namespace string, ok bool) {
	rest, ok := strings.CutSuffix(host, ".svc."+domain)
	if !ok {
		return "", "", false
	}
	name, namespace, ok = strings.Cut(rest, ".")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, ".") || IsWildcard(name) {
		return "", "", false
	}
	return name, namespace, true
}

// ShortNames returns the short names of a cluster host that callers of all namespaces can use; none for other hosts.
func ShortNames(host, domain string) []string {
	name, namespace, ok := ClusterHost(host, domain)
	if !ok {
		return nil
	}
	return []string{name + "." + namespace, name + "." + namespace + ".svc"}
}

// LongHost returns the cluster host for a short name of the form name.namespace or name.namespace.svc. ok is false if
// host has another form.
func LongHost(host, domain string) (long string, ok bool) {
	name, _ := strings.CutSuffix(host, ".svc")
	if IsWildcard(host) || strings.Count(name, ".") != 1 {
		return "", false
	}
	return name + ".svc." + domain, true
}

// LooksShort reports whether a host has the form of a short name of a cluster host, for callers of some namespace.
func LooksShort(host string) bool {
	return !IsWildcard(host) && strings.Count(strings.TrimSuffix(host, ".svc"), ".") <= 1
}
