package kube_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kept"
	"github.com/pilotmesh/pilot/internal/source/kube"
)

// replica is a source of one replica, and what its batches add up to.
type replica struct {
	t        *testing.T
	book     *kept.Book
	objects  map[api.Key]*api.Object
	problems map[api.Problem]bool
	synced   bool
	stop     func()
	// applying is held in Apply. A test that only lets time pass between two looks locks it too.
	applying sync.Mutex
}

// Apply implements source.Sink. The source calls it with its mutex held, so a test reads after synctest.Wait.
func (r *replica) Apply(b source.Batch) {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.synced = b.Synced
	for _, e := range b.Events {
		if e.Object == nil {
			delete(r.objects, e.Key)
		} else {
			r.objects[e.Key] = e.Object
		}
	}
	for _, p := range b.Problems {
		if p.Gone {
			delete(r.problems, p.Problem)
		} else {
			r.problems[p.Problem] = true
		}
	}
}

// says reports whether some problem has a text.
func (r *replica) says(text string) bool {
	for p := range r.problems {
		if strings.Contains(p.String(), text) {
			return true
		}
	}
	return false
}

// denies returns the path that the policy denies: "everything" if it has no paths, "nothing" if it is not in force.
func (r *replica) denies() string {
	o := r.objects[api.Key{Kind: api.KindAuthorizationPolicy, Namespace: "shop", Name: "p"}]
	if o == nil {
		return "nothing"
	}
	for _, to := range o.Spec.(*security.AuthorizationPolicy).Rules[0].To {
		return to.Operation.Paths[0]
	}
	return "everything"
}

// join starts a replica. It must run in a bubble of synctest.
func join(t *testing.T, server *apiServer, change ...func(*kube.Options)) *replica {
	t.Helper()
	r := &replica{t: t, book: &kept.Book{}, objects: map[api.Key]*api.Object{}, problems: map[api.Problem]bool{}}
	o := kube.Options{
		Config: &rest.Config{Host: "http://cluster.test", Transport: server}, Cluster: "Kubernetes", Configuration: true,
		Policies: r.book, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	s, err := kube.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, r) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return r
}

// object reads an object of a test.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// policy is a version of a policy that was created on a day. It is refused if its path is empty.
func policy(t *testing.T, day, generation int, path string) *unstructured.Unstructured {
	t.Helper()
	operation := "{ports: ['80'], paths: [" + path + "]}"
	if path == "" {
		operation = "{ports: ['99999']}"
	}
	return object(t, fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: shop, generation: %d, creationTimestamp: "2026-01-%02dT00:00:00Z"}
spec: {action: DENY, rules: [{to: [{operation: %s}]}]}
`, generation, day, operation))
}

// write writes what a book has to the ConfigMaps, as the leader does.
func (r *replica) write(server *apiServer) {
	r.t.Helper()
	for _, i := range r.book.Changed() {
		data, _, err := kept.Encode(r.book.Take(i))
		if err != nil {
			r.t.Fatal(err)
		}
		server.put(object(r.t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: istio-system}\nbinaryData: {%s: %s}\n",
			kube.KeptMap(i), kube.KeptKey, base64.StdEncoding.EncodeToString(data))))
	}
	synctest.Wait()
}

// TestReplicasAgree: a policy whose present version is refused has the same version in force on the replica that knew it, on one that
// starts later, and on one that knew an older version.
func TestReplicasAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.put(policy(t, 1, 1, "/a"))
		leader := join(t, server)
		defer leader.stop()
		leader.write(server)
		if leader.denies() != "/a" || !leader.synced {
			t.Fatal(leader.denies(), leader.synced)
		}
		server.put(policy(t, 1, 2, ""))
		synctest.Wait()
		follower := join(t, server)
		if leader.denies() != "/a" || follower.denies() != "/a" || !follower.synced {
			t.Errorf("the leader denies %s, and a new replica %s", leader.denies(), follower.denies())
		}
		follower.stop()

		// A replica that missed a good version takes it from the leader.
		late := join(t, server)
		defer late.stop()
		server.allow("authorizationpolicies.security.istio.io", false)
		after(time.Minute)
		server.put(policy(t, 1, 3, "/c"))
		server.allow("authorizationpolicies.security.istio.io", true)
		after(time.Minute)
		leader.write(server)
		server.put(policy(t, 1, 4, ""))
		synctest.Wait()
		again := join(t, server)
		defer again.stop()
		for name, r := range map[string]*replica{"the leader": leader, "another": late, "a new one": again} {
			if r.denies() != "/c" || r.says("no earlier version") {
				t.Errorf("%s denies %s", name, r.denies())
			}
		}
		leader.write(server)
		if again.denies() != "/c" {
			t.Error("the leader forgets a version that it received")
		}
		server.put(policy(t, 1, 5, "/d"))
		synctest.Wait()
		if again.denies() != "/d" || again.says("AuthorizationPolicy") {
			t.Errorf("the good version denies %s, %v", again.denies(), again.problems)
		}
	})
}

// after waits at the fake time until everything has been done that is due by then.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestKeptVersionIsNotForAnother: a version that is kept of a deleted policy is not used for another one of its name, and a policy that was
// deleted stays so.
func TestKeptVersionIsNotForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.put(policy(t, 1, 1, "/a"))
		leader := join(t, server)
		leader.write(server)
		leader.stop()
		server.remove("AuthorizationPolicy", "shop/p")
		gone := join(t, server)
		if gone.denies() != "nothing" {
			t.Errorf("it denies %s", gone.denies())
		}
		gone.stop()
		server.put(policy(t, 2, 1, ""))
		other := join(t, server)
		defer other.stop()
		if other.denies() != "everything" || !other.says("no earlier version is known") {
			t.Errorf("it denies %s", other.denies())
		}
		other.write(server)
		server.remove("AuthorizationPolicy", "shop/p")
		synctest.Wait()
		if other.denies() != "nothing" || len(other.problems) > 0 {
			t.Errorf("it denies %s, %v", other.denies(), other.problems)
		}
	})
}

// TestUnreadableMemory: if kept versions are damaged or may not be read, a refused policy denies everything, and a Problem says why. A setting makes
// it ignored instead.
func TestUnreadableMemory(t *testing.T) {
	for _, c := range []struct {
		name, want, remark string
		spoil              func(t *testing.T, s *apiServer)
		change             func(*kube.Options)
	}{
		{"damaged", "everything", "it is damaged", func(t *testing.T, s *apiServer) {
			for i := range kept.Parts {
				s.put(object(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: istio-system}\nbinaryData: {%s: AAAA}\n", kube.KeptMap(i), kube.KeptKey)))
			}
		}, nil},
		{"deleted", "everything", "no earlier version is known", func(_ *testing.T, s *apiServer) {
			for i := range kept.Parts {
				s.remove("ConfigMap", "istio-system/"+kube.KeptMap(i))
			}
		}, nil},
		{"forbidden", "everything", "configmaps", func(_ *testing.T, s *apiServer) { s.allow("configmaps.", false) }, nil},
		{"ignored", "nothing", "a port is a number", func(_ *testing.T, s *apiServer) { s.allow("configmaps.", false) }, func(o *kube.Options) { o.IgnoreRefused = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.put(policy(t, 1, 1, "/a"))
				leader := join(t, server)
				leader.write(server)
				leader.stop()
				server.put(policy(t, 1, 2, ""))
				c.spoil(t, server)
				r := join(t, server, func(o *kube.Options) {
					if c.change != nil {
						c.change(o)
					}
				})
				defer r.stop()
				after(time.Minute)
				if r.denies() != c.want || !r.says(c.remark) || !r.synced {
					t.Errorf("it denies %s, synced %v: %v", r.denies(), r.synced, r.problems)
				}
				if c.name == "forbidden" && r.book.IsComplete() {
					t.Error("kept versions would be overwritten unread")
				}
			})
		})
	}
}

// TestPermissionForPolicies: a control plane that may not list a kind of policies is not ready and says why; a running one keeps the
// policies that it has listed, also when it may not read the definitions any more. A kind that is not defined is not waited for.
func TestPermissionForPolicies(t *testing.T) {
	for _, kind := range []string{api.KindAuthorizationPolicy, api.KindPeerAuthentication, api.KindRequestAuthentication} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, _ := api.FindKind(kind)
				of := k.Plural() + "." + k.Group()
				server := newAPIServer()
				server.put(policy(t, 1, 1, "/a"))
				server.allow(of, false)
				r := join(t, server)
				defer r.stop()
				after(10 * time.Minute)
				if r.synced || !r.says(k.Plural()) || !r.says("the control plane is not ready") {
					t.Errorf("synced %v, %v", r.synced, r.problems)
				}
				server.allow(of, true)
				after(time.Minute)
				if !r.synced || r.denies() != "/a" || len(r.problems) > 0 {
					t.Fatalf("synced %v, it denies %s, %v", r.synced, r.denies(), r.problems)
				}
				server.allow(of, false)
				server.allow("customresourcedefinitions.apiextensions.k8s.io", false)
				after(10 * time.Minute)
				if r.denies() != "/a" || !r.says(k.Plural()) || r.says("the control plane is not ready") {
					t.Errorf("it denies %s, %v", r.denies(), r.problems)
				}
			})
		})
	}
}

// TestPermissionForSelectedNamespaces: if the mesh selects namespaces, and these may not be listed, it is not known which policies count.
func TestPermissionForSelectedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.put(object(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {mesh: a}}"))
		server.put(policy(t, 1, 1, "/a"))
		server.allow("namespaces.", false)
		r := join(t, server, func(o *kube.Options) {
			o.Mesh = &meshconfig.MeshConfig{DiscoverySelectors: []*meshconfig.LabelSelector{{MatchLabels: map[string]string{"mesh": "a"}}}}
		})
		defer r.stop()
		after(10 * time.Minute)
		if r.synced || !r.says("namespaces") {
			t.Errorf("synced %v, %v", r.synced, r.problems)
		}
		server.allow("namespaces.", true)
		after(time.Minute)
		if !r.synced || r.denies() != "/a" {
			t.Errorf("synced %v, it denies %s, %v", r.synced, r.denies(), r.problems)
		}
	})
}
