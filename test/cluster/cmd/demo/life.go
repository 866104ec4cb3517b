package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/testbed"
)

// strict demands mutual TLS of everybody but customers, who have no certificates. The exception comes first, so that no customer is refused in between.
const strict = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: shop, namespace: bookstore}
spec: {selector: {matchLabels: {app: shop}}, mtls: {mode: PERMISSIVE}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: bookstore}
spec: {mtls: {mode: STRICT}}
`

// secure demands mutual TLS while requests run. Then the catalog refuses a caller without a certificate.
func (s *stage) secure(ctx context.Context) error {
	s.Line("")
	err := s.tour.During("kubectl apply: PeerAuthentication STRICT, and no client without a certificate reaches the catalog", func() error {
		if _, err := s.Kubectl(ctx, strict, "apply", "-f", "-"); err != nil {
			return err
		}
		return testbed.Until(ctx, "the catalog to refuse plain text", s.refused)
	})
	if err != nil {
		return err
	}
	catalog, err := s.Pod(ctx, "catalog")
	if err != nil {
		return err
	}
	n, err := s.Handshakes(ctx, catalog)
	if err == nil && n == 0 {
		err = fmt.Errorf("the proxy of the catalog has accepted no TLS connection")
	}
	if err == nil {
		s.Line(fmt.Sprintf("    its proxy has accepted %d connections, with certificates of the mesh", n))
	}
	return err
}

// refused returns an error if the catalog answers a caller without a certificate.
func (s *stage) refused(ctx context.Context) error {
	address, err := s.Service(ctx, mesh.Namespace, "catalog", "http")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		return err
	}
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil //nolint:nilerr // the connection is closed, as wanted
	}
	resp.Body.Close()
	return fmt.Errorf("it answers with %s", resp.Status)
}

// nextImage is the image of the next version. All versions of the test cluster are the same program.
const nextImage = "pilot.test/pilot-discovery:v2"

// upgrade replaces the control plane while requests run. An edit reaches the proxies from the new one.
func (s *stage) upgrade(ctx context.Context) error {
	s.Line("")
	err := s.tour.During("pilotctl upgrade, with pilotctl check before and after it", func() error {
		for _, args := range [][]string{{"check"}, {"upgrade", "--set", "image=" + nextImage}, {"check"}} {
			if _, err := s.Pilotctl(ctx, args...); err != nil {
				return err
			}
		}
		return testbed.Until(ctx, "all proxies to connect to the new control plane", s.moved)
	})
	if err != nil {
		return err
	}
	s.tour.First, s.tour.Steps = tour.Weights{34, 33, 33}, []tour.Weights{{100, 0, 0}}
	return s.tour.Go(ctx)
}

// moved returns an error until the former control plane is gone, and the new one has all proxies.
func (s *stage) moved(ctx context.Context) error {
	replicas, err := s.cluster.Client().CoreV1().Pods(mesh.ControlNamespace).List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(replicas.Items, func(p core.Pod) bool { return p.Spec.Containers[0].Image != nextImage }); i >= 0 {
		return fmt.Errorf("the pod %s still runs", replicas.Items[i].Name)
	}
	pods, err := s.Pods(ctx, "")
	if err != nil {
		return err
	}
	status, err := s.Get(ctx, "/debug/syncz")
	if err != nil {
		return err
	}
	for _, p := range pods {
		if !strings.Contains(status, p.Name+"."+mesh.Namespace) {
			return fmt.Errorf("the proxy of %s has not connected yet", p.Name)
		}
	}
	return nil
}

// remove takes everything away again: then the cluster has the objects that it had before.
func (s *stage) remove(ctx context.Context) error {
	s.edits.close() // the kinds that it watches are removed
	s.edits = nil
	s.Line("")
	return s.Step("pilotctl uninstall --crds, kubectl delete namespace bookstore: nothing is left", func() error {
		if _, err := s.Kubectl(ctx, "", "delete", "namespace", mesh.Namespace); err != nil {
			return err
		}
		if _, err := s.Pilotctl(ctx, "uninstall", "--crds"); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return testbed.Until(ctx, "the cluster to be as before", func(ctx context.Context) error {
			now, err := s.Objects(ctx)
			if err != nil {
				return err
			}
			for _, name := range now {
				if !slices.Contains(s.before, name) {
					return fmt.Errorf("%s is left", name)
				}
			}
			if len(now) != len(s.before) {
				return fmt.Errorf("%d objects are left of %d", len(now), len(s.before))
			}
			return nil
		})
	})
}
