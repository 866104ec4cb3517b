package loop

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// secret is a provider of secrets: each is for the proxies of one namespace. The secret "bug" panics.
func (f *fixture) secret(r *query.Reader, p *proxy.Proxy, name, _ string) classes.Answer {
	namespace, ok := f.secrets.Get(r, name)
	switch {
	case !ok:
		return classes.Answer{}
	case namespace == "bug":
		panic("a bug")
	case namespace != p.Namespace:
		return classes.Answer{Denied: true}
	}
	msg := &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
		Secret: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "of " + namespace}},
	}}}
	return classes.Answer{Resource: resource.New(resource.Secret, name, msg)}
}

// set commits a secret, or takes it away.
func (f *fixture) set(name, namespace string) {
	f.Loop.queue.add(&job{rows: 1, write: func(tx *store.Txn) {
		if namespace == "" {
			f.secrets.Delete(tx, name)
		} else {
			f.secrets.Set(tx, name, namespace)
		}
	}})
}

// got waits until a stream's last answer to a name is a resource, or that there is none.
func (s *stream) got(f *fixture, name string, resource bool) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("an answer to %s: %v", name, resource), func(*View) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		a, ok := s.answers[name]
		return ok && (a.Resource != nil) == resource
	})
}

// hasProblem reports whether there is exactly one problem of a field with a text.
func hasProblem(field, text string) func(*View) bool {
	return func(v *View) bool {
		n := 0
		for _, p := range v.Problems.All() {
			if p.Field == field && strings.Contains(p.Reason, text) {
				n++
			}
		}
		return n == 1
	}
}

// TestWants checks that a proxy receives its own answers to the names it asks for, and again when they change, until it drops the
// names. A name without an answer is a problem.
func TestWants(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	a, web := f.attach(web0, "") // of namespace shop
	b, bank := f.attach("sidecar~10.0.0.9~ledger-0.bank~bank.svc.cluster.local", "")

	a.Want(resource.Secret, []string{"key"}, nil)
	web.got(f, "key", false)
	f.eventually("a problem", hasProblem(`SDS "key"`, "proxy "+web0+" asks for this secret, and there is none"))
	f.set("key", "shop")
	web.got(f, "key", true)
	f.eventually("no problem", func(v *View) bool { return !hasProblem(`SDS "key"`, "")(v) })

	b.Want(resource.Secret, []string{"key"}, nil)
	bank.got(f, "key", false)
	f.eventually("a problem of the other", hasProblem(`SDS "key"`, "ledger-0.bank~bank.svc.cluster.local asks for this secret, and it is not for it"))
	f.set("key", "bank")
	bank.got(f, "key", true)
	web.got(f, "key", false)

	f.set("key", "bug") // a bug shows nothing to anybody
	bank.got(f, "key", false)
	web.got(f, "key", false)
	f.set("key", "shop")
	web.got(f, "key", true)

	a.Refuse(resource.Secret, []string{"key"}, "bad key")
	f.eventually("a problem of the rejection", hasProblem(`SDS "key"`, "proxy "+web0+" rejected this secret"))
	a.Refuse(resource.Secret, []string{"key"}, "")
	f.eventually("a problem of the other only", func(v *View) bool {
		return hasProblem(`SDS "key"`, "ledger-0.bank")(v) && !hasProblem(`SDS "key"`, "rejected")(v)
	})

	a.Want(resource.Secret, []string{"other"}, []string{"key"})
	a.Refuse(resource.Secret, []string{"other"}, "no such file")
	f.eventually("the reason why there is none", hasProblem(`SDS "other"`, "there is none: no such file"))
	f.eventually("rows of what is asked for", func(v *View) bool {
		keys := v.Tables.WantsOf.Peek(a.ID())
		return keys.Len() == 1 && keys.Has(connected.ResourceKey{Type: uint8(resource.Secret), Name: "other"})
	})
	a.Close()
	b.Close()
	f.eventually("nothing", func(v *View) bool {
		return v.Tables.Wants.Len() == 0 && v.Graph.Cells()["answer"] == 0 && !hasProblem(`SDS "key"`, "")(v) && !hasProblem(`SDS "other"`, "")(v)
	})
}

const secured = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  selector: {istio: ingress}
  servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [shop.example], tls: {mode: SIMPLE, credentialName: cert}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: another, namespace: shop}
spec:
  selector: {istio: another}
  servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [other.example], tls: {mode: SIMPLE, credentialName: cert}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: mutual, namespace: shop}
spec:
  selector: {istio: ingress}
  servers: [{port: {number: 444, name: https, protocol: HTTPS}, hosts: [mutual.example], tls: {mode: MUTUAL, credentialName: other, caCertCredentialName: clients}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, workloadSelector: {matchLabels: {app: web}}, trafficPolicy: {tls: {mode: MUTUAL, credentialName: cert}}}
`

// TestMissingSecretNamesItsUser: the problem about a Secret that does not exist is at the Gateway that the proxy serves, or at the
// DestinationRule of its namespace, and at no object that only has the same name for a Secret.
func TestMissingSecretNamesItsUser(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews + "---" + secured)
	at := func(name, field string, want api.Key) func(*View) bool {
		return func(v *View) bool {
			for _, p := range v.Problems.All() {
				if p.Field == field && strings.Contains(p.Reason, name) {
					return p.Object == want
				}
			}
			return false
		}
	}
	for _, one := range []struct {
		id, metadata, secret string
		want                 api.Key
	}{
		{"router~10.0.0.5~gate-0.shop~shop.svc.cluster.local", `{"LABELS": {"istio": "ingress"}}`, "kubernetes://cert", api.Key{Kind: "Gateway", Namespace: "shop", Name: "web"}},
		{"router~10.0.0.4~gate-2.shop~shop.svc.cluster.local", `{"LABELS": {"istio": "ingress"}}`, "kubernetes://clients-cacert", api.Key{Kind: "Gateway", Namespace: "shop", Name: "mutual"}},
		{"router~10.0.0.6~gate-1.shop~shop.svc.cluster.local", `{"LABELS": {"istio": "ingress"}}`, "kubernetes://nobodys", api.Key{}},
		{"sidecar~10.0.0.7~client-0.shop~shop.svc.cluster.local", `{"LABELS": {"app": "web"}}`, "kubernetes://cert-cacert", api.Key{Kind: "DestinationRule", Namespace: "shop", Name: "reviews"}},
		{"sidecar~10.0.0.9~ledger-0.bank~bank.svc.cluster.local", "", "kubernetes://cert", api.Key{}},
	} {
		c, s := f.attach(one.id, one.metadata)
		c.Want(resource.Secret, []string{one.secret}, nil)
		s.got(f, one.secret, false)
		f.eventually("a problem at "+one.want.String(), at(proxy.NameOf(one.id), fmt.Sprintf("SDS %q", one.secret), one.want))
	}
}

// TestInventedNames checks that a proxy has one problem if it asks for many names that do not exist, and that the problem of another proxy
// stays.
func TestInventedNames(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	a, web := f.attach(web0, "")
	b, bank := f.attach("sidecar~10.0.0.9~ledger-0.bank~bank.svc.cluster.local", "")
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("invented-%03d", i))
	}
	b.Want(resource.Secret, []string{"own"}, nil)
	bank.got(f, "own", false)
	a.Want(resource.Secret, names, nil)
	web.got(f, "invented-299", false)
	problems := func(has string) func(*View) bool {
		return func(v *View) bool {
			var list []string
			for _, p := range v.Problems.All() {
				if strings.Contains(p.Reason, "web-0") {
					list = append(list, p.Field+": "+p.Reason)
				}
			}
			return len(list) == 1 && strings.Contains(list[0], has)
		}
	}
	f.eventually("one problem", problems("SDS of web-0.shop: proxy "+web0+` asks for 300 resources of this type that it does not get: "invented-000", "invented-001", "invented-002" and others`))
	f.eventually("that of the other", hasProblem(`SDS "own"`, "ledger-0"))
	a.Want(resource.Secret, nil, names[1:])
	f.eventually("one name has a problem of its own", hasProblem(`SDS "invented-000"`, "proxy "+web0+" asks for this secret, and there is none"))
	a.Close()
	b.Close()
	f.eventually("nothing", func(v *View) bool { return !hasProblem(`SDS "invented-000"`, "")(v) && !hasProblem(`SDS "own"`, "")(v) })
}

// TestWantsAreCoalesced checks that names that a stream asks for and drops while the loop is busy cost only what remains.
func TestWantsAreCoalesced(t *testing.T) {
	f := start(t, Settings{})
	f.apply(reviews)
	a, s := f.attach(web0, "")
	s.wait(t, "a state", has(resource.Cluster, "outbound|80||reviews.example.com"))
	busy, free := make(chan struct{}), make(chan struct{})
	f.Loop.queue.add(&job{write: func(*store.Txn) { close(busy); <-free }})
	<-busy
	for i := range 1000 {
		a.Want(resource.Secret, []string{fmt.Sprint("s", i)}, nil)
		a.Want(resource.Secret, nil, []string{fmt.Sprint("s", i)})
	}
	a.Want(resource.Secret, []string{"last"}, nil)
	f.Loop.queue.mu.Lock()
	jobs := f.Loop.queue.jobs.Len()
	f.Loop.queue.mu.Unlock()
	if jobs != 1 {
		t.Errorf("%d jobs wait", jobs)
	}
	close(free)
	s.got(f, "last", false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) != 1 || s.answers["last"] != (protocol.Answer{Type: resource.Secret, Name: "last"}) {
		t.Errorf("answers: %v", s.answers)
	}
}
