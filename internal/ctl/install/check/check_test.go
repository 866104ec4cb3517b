package check

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/ctl/install"
)

// TestOverlaps: two control planes that inject the same pods are found, and two revisions beside each other are not.
func TestOverlaps(t *testing.T) {
	of := func(configuration, namespace string, values map[string]any) (all []hook) {
		t.Helper()
		objects, err := install.Render(install.ControlPlane, install.Release{Namespace: namespace}, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() != "MutatingWebhookConfiguration" {
				continue
			}
			list, _ := o.Object["webhooks"].([]any)
			for _, one := range list {
				m, _ := one.(map[string]any)
				w := &admission.MutatingWebhook{NamespaceSelector: selector(t, m["namespaceSelector"]), ObjectSelector: selector(t, m["objectSelector"])}
				l := o.GetLabels()
				all = append(all, hook{configuration: configuration + l[install.TagLabel], revision: l[install.RevisionLabel], tag: l[install.TagLabel], injects: w})
			}
		}
		if len(all) == 0 {
			t.Fatal("no webhooks")
		}
		return all
	}
	first := of("first", "istio-system", nil)
	if found := overlaps(append(of("canary", "istio-system", map[string]any{"revision": "canary"}), first...)); len(found) > 0 {
		t.Errorf("a revision beside the default one: %v", found)
	}
	tagged := of("canary", "istio-system", map[string]any{"revision": "canary", "revisionTags": []any{"prod"}})
	if found := overlaps(append(tagged, first...)); len(found) > 0 {
		t.Errorf("a revision with a tag beside the default one: %v", found)
	}
	if found := overlaps(append(of("other", "istio-system", map[string]any{"revision": "prod"}), tagged...)); len(found) != 1 {
		t.Errorf("a tag with the name of another revision: %v", found)
	}
	if found := overlaps(append(of("second", "mesh", nil), first...)); len(found) != 2 {
		t.Errorf("two default control planes: %v", found)
	}
}

// TestInjects: the namespaces whose pods a control plane injects, by the names that it has.
func TestInjects(t *testing.T) {
	for _, c := range []struct {
		names  []string
		labels map[string]string
		want   bool
	}{
		{[]string{"default"}, map[string]string{"istio-injection": "enabled"}, true},
		{[]string{"default"}, map[string]string{"istio.io/rev": "default"}, true},
		{[]string{"default"}, map[string]string{"istio.io/rev": "canary"}, false},
		{[]string{"default"}, map[string]string{"istio-injection": "disabled", "istio.io/rev": "default"}, false},
		{[]string{"canary", "prod"}, map[string]string{"istio.io/rev": "prod"}, true},
		{[]string{"canary", "prod"}, map[string]string{"istio-injection": "enabled", "istio.io/rev": "prod"}, false},
		{[]string{"canary", "default"}, map[string]string{"istio-injection": "enabled"}, true},
		{[]string{"canary"}, nil, false},
		{nil, map[string]string{"istio-injection": "enabled"}, false},
	} {
		if is := injects(c.names, c.labels); is != c.want {
			t.Errorf("%v injects %v: %t", c.names, c.labels, is)
		}
	}
}

// selector reads a selector of a rendered object.
func selector(t *testing.T, v any) *metav1.LabelSelector {
	t.Helper()
	s := &metav1.LabelSelector{}
	m, _ := v.(map[string]any)
	list, _ := m["matchExpressions"].([]any)
	for _, one := range list {
		e, _ := one.(map[string]any)
		r := metav1.LabelSelectorRequirement{Key: e["key"].(string), Operator: metav1.LabelSelectorOperator(e["operator"].(string))}
		values, _ := e["values"].([]any)
		for _, v := range values {
			r.Values = append(r.Values, v.(string))
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

// TestCertificates: the end of a certificate decides the level.
func TestCertificates(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for remains, want := range map[time.Duration]Level{-time.Hour: Error, 0: Error, 29 * 24 * time.Hour: Warning, 31 * 24 * time.Hour: OK} {
		d := &doctor{Options: Options{Now: func() time.Time { return now }}}
		d.certificate("certificates", "the root", now.Add(remains))
		if d.found[0].Level != want {
			t.Errorf("%v before its end: %v, want %v", remains, d.found[0], want)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	if all := parseCertificates(bytes.Join([][]byte{text, broken, []byte("x\n"), text}, nil)); len(all) != 2 || !all[1].NotAfter.Equal(now) {
		t.Errorf("%d certificates", len(all))
	}
}

// TestClock: the level follows from the difference, in either direction.
func TestClock(t *testing.T) {
	date := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for skew, want := range map[time.Duration]Level{2 * time.Second: OK, -2 * time.Second: OK, 10 * time.Second: Warning, -10 * time.Second: Warning, time.Hour: Error, -time.Hour: Error} {
		d := &doctor{Options: Options{Now: func() time.Time { return date.Add(skew) }}, date: date}
		d.time()
		if d.found[0].Level != want {
			t.Errorf("%v: %v, want %v", skew, d.found[0], want)
		}
	}
}
