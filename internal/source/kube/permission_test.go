package kube_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/source/kube"
)

// TestPermissionForWhatDecides: the settings of the mesh and the tags of revisions decide which policies apply. A control plane that may not list
// them is not ready and says why; a running one keeps the listed objects.
func TestPermissionForWhatDecides(t *testing.T) {
	const settings, tags = "configmaps", "mutatingwebhookconfigurations"
	for of, group := range map[string]string{settings: "", tags: "admissionregistration.k8s.io"} {
		t.Run(of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				p := policy(t, 1, 1, "/a")
				p.SetLabels(map[string]string{"istio.io/rev": "prod"})
				server.put(p)
				server.put(object(t, "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: tag, labels: {istio.io/tag: prod, istio.io/rev: blue}}"))
				server.allow(of+"."+group, false)
				r := join(t, server, func(o *kube.Options) {
					o.Revision, o.MeshConfigMap = "blue", of == settings
				})
				defer r.stop()
				after(10 * time.Minute)
				if r.synced || !r.says(of) && !r.says("configmap ") || !r.says("the control plane is not ready") {
					t.Errorf("synced %v, %v", r.synced, r.problems)
				}
				server.allow(of+"."+group, true)
				after(time.Minute)
				if !r.synced || r.denies() != "/a" || len(r.problems) > 0 {
					t.Fatalf("synced %v, it denies %s, %v", r.synced, r.denies(), r.problems)
				}
				server.allow(of+"."+group, false)
				after(10 * time.Minute)
				if !r.synced || r.denies() != "/a" || !r.says(of) || r.says("the control plane is not ready") {
					t.Errorf("synced %v, it denies %s, %v", r.synced, r.denies(), r.problems)
				}
			})
		})
	}
}
