package main

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/inject"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// The webhook that injects proxies follows the ProxyConfigs of each commit, and makes no new injector for a commit that changes none.
func TestWebhookFollowsProxyConfigs(t *testing.T) {
	s := config.New(func(string) (string, bool) { return "", false })
	s.ConfigDir, s.HTTPSAddr, s.SecureGRPCAddr = "", ":0", ":0"
	w := &webhooks{settings: s, log: slog.New(slog.DiscardHandler)}
	if !w.serves() {
		t.Fatal("the settings are not those of a control plane with webhooks")
	}
	w.setValues(nil)
	world := meshtest.New(t)
	variable := func() string {
		w.setConfig(world.Tables)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
		done, err := w.injector.Inject(inject.Request{Pod: pod})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range slices.Concat(done.Pod.Spec.InitContainers, done.Pod.Spec.Containers) {
			for _, e := range c.Env {
				if e.Name == "FROM" {
					return e.Value
				}
			}
		}
		return ""
	}
	if got := variable(); got != "" {
		t.Errorf("without a ProxyConfig: %q", got)
	}
	const of = "apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {name: a, namespace: shop}\nspec: {environmentVariables: {FROM: "
	world.Apply(of + "first}}\n")
	if got := variable(); got != "first" {
		t.Errorf("with a ProxyConfig: %q", got)
	}
	was := w.injector
	world.Apply("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\nspec: {hosts: [a.test], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}\n")
	if variable(); w.injector != was {
		t.Error("there is a new injector, although no ProxyConfig has changed")
	}
	world.Apply(of + "second}}\n")
	if got := variable(); got != "second" {
		t.Errorf("after an edit: %q", got)
	}
	world.Delete(api.Key{Kind: api.KindProxyConfig, Namespace: "shop", Name: "a"})
	if got := variable(); got != "" {
		t.Errorf("after the removal: %q", got)
	}
}
