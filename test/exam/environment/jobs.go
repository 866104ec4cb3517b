package environment

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/client"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

func watches(r *casefile.Request, what string) bool { return slices.Contains(r.Watch, what) }

// addTokens mints the JWTs a request asks for and puts them where it wants them.
func (env *environment) addTokens(j *client.Job, r *casefile.Request) error {
	if r.JWT == nil && r.JWTs == nil {
		return nil
	}
	var pairs []string
	for name, spec := range r.JWTs {
		token, err := env.keys.Token(spec)
		if err != nil {
			return err
		}
		pairs = append(pairs, "${JWT:"+name+"}", token)
	}
	put := strings.NewReplacer(pairs...).Replace
	h := *r.HTTP
	h.Path, h.Host = put(h.Path), put(h.Host)
	h.Headers = map[string]casefile.Values{}
	for k, vs := range r.HTTP.Headers {
		for _, v := range vs {
			h.Headers[k] = append(h.Headers[k], put(v))
		}
	}
	if r.JWT != nil {
		token, err := env.keys.Token(r.JWT)
		if err != nil {
			return err
		}
		h.Headers["Authorization"] = casefile.Values{"Bearer " + token}
	}
	j.Request.HTTP = &h
	return nil
}

// issuer is the CA that signs a request's client certificate.
func (env *environment) issuer(t *casefile.TLS) *certs.Authority {
	if t.CA == "public" {
		return env.keys.Public
	}
	return env.keys.Mesh
}

// boundPorts are the ports Envoy will bind in the workload's namespace for a gateway: no echo may sit there.
func boundPorts(c *casefile.Case) []int {
	if c.Proxy.Type != "router" {
		return nil
	}
	var out []int
	docs, _ := c.Documents()
	for _, d := range docs {
		spec, _ := d["spec"].(obj)
		switch d["kind"] {
		case "Gateway":
			for _, s := range list(spec["servers"]) {
				port, _ := s["port"].(obj)
				out = append(out, number(port["number"]))
			}
		case "ServiceEntry":
			// a service of the gateway itself translates its ports
			for _, e := range list(spec["endpoints"]) {
				if e["address"] != "10.76.0.2" {
					continue
				}
				for _, p := range list(spec["ports"]) {
					out = append(out, number(p["targetPort"]), number(p["number"]))
				}
			}
		}
	}
	return out
}

func list(v any) []obj {
	l, _ := v.([]any)
	var out []obj
	for _, x := range l {
		if m, ok := x.(obj); ok {
			out = append(out, m)
		}
	}
	return out
}

func number(v any) int { n, _ := v.(int); return n }
