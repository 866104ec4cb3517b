package serving

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/cluster/operator"
)

// tags returns the tags of the cluster as TAG=REVISION with their namespaces.
func (u *user) tags() string {
	u.Helper()
	var list []struct {
		Tag, Revision string
		Namespaces    []string
	}
	u.Must(json.Unmarshal([]byte(u.Done("tag", "list", "-o", "json")), &list))
	var all []string
	for _, one := range list {
		all = append(all, one.Tag+"="+one.Revision+"("+strings.Join(one.Namespaces, ",")+")")
	}
	return strings.Join(all, " ")
}

// TestTags: namespaces move from one revision to another and back, with a tag of their own and with the tag default.
func TestTags(t *testing.T) {
	u := on(t)
	before := u.Objects()
	u.Refused(1, "no control plane has the revision canary", "tag", "set", "prod", "--revision", "canary")
	for _, revision := range []string{"default", "canary"} {
		u.Done("install", "-f", u.Values, "--revision", revision)
		t.Cleanup(func() { u.Run("uninstall", "--revision", revision) })
	}
	u.Until("the roots of the webhooks", func() bool {
		return u.Rooted("istio-sidecar-injector")() && u.Rooted("istio-sidecar-injector-canary")()
	})
	u.Namespace("shop", "istio.io/rev=prod")
	u.Namespace("plain", "istio-injection=enabled")
	u.ownTag()
	u.defaultTag()
	u.Kubectl("delete", "namespace", "shop", "plain")
	u.Done("uninstall")
	u.Done("uninstall", "--revision", "canary", "--crds")
	u.Unchanged(before)
}

// ownTag moves the namespace shop, which has a tag of its own.
func (u *user) ownTag() {
	u.Helper()
	u.Refused(1, "a control plane has the revision canary", "tag", "set", "canary", "--revision", "default")
	u.Refused(2, "write lower-case letters", "tag", "set", "Prod!", "--revision", "default")
	u.Done("tag", "set", "prod", "--revision", "default")
	u.Deploy("shop")
	if r := u.Restarted("shop"); r != "default" {
		u.Errorf("the proxy has the revision %q", r)
	}
	u.Refused(1, "move it with --overwrite", "tag", "set", "prod", "--revision", "canary")
	if out := u.Done("tag", "generate", "prod", "--revision", "canary"); !strings.Contains(out, "name: istiod-canary") || !strings.Contains(out, "caBundle") {
		u.Errorf("the objects of the tag are\n%s", out)
	}
	u.Done("tag", "set", "prod", "--revision", "canary", "--overwrite")
	if r := u.Restarted("shop"); r != "canary" {
		u.Errorf("after the tag has moved, the proxy has the revision %q", r)
	}
	if is := u.tags(); is != "prod=canary(shop)" {
		u.Errorf("the tags are %s", is)
	}
	u.keepsRoots("istio-revision-tag-prod")
	u.Refused(1, "the tag prod points to the revision canary", "uninstall", "--revision", "canary")
	u.Done("tag", "set", "prod", "--revision", "default", "--overwrite")
	if r := u.Restarted("shop"); r != "default" {
		u.Errorf("after the tag is back, the proxy has the revision %q", r)
	}
	u.Refused(1, "in use by the namespaces shop", "tag", "remove", "prod")
	u.Done("tag", "remove", "prod", "--skip-confirmation")
	u.Refused(1, "there is no tag prod", "tag", "remove", "prod")
}

// keepsRoots takes the roots out of a configuration, and waits until the control plane has written them again.
func (u *user) keepsRoots(configuration string) {
	u.Helper()
	u.Kubectl("patch", "mutatingwebhookconfiguration", configuration, "--type=json", "-p", `[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]`)
	u.Until("the roots of "+configuration, u.Rooted(configuration))
}

// both lets the webhooks of two revisions select the same pods: these get one proxy that works, and check names both.
func (u *user) both() {
	u.Helper()
	objects := u.Done("tag", "generate", "default", "--revision", "canary")
	u.Apply(objects)
	u.Restarted("plain")
	found := strings.Join(u.Levels()["error"], "\n")
	if !strings.Contains(found, "are injected by several: istio-revision-tag-default, istio-sidecar-injector") {
		u.Errorf("check does not find webhooks that inject the same pods: %s", found)
	}
	u.Done("tag", "remove", "default", "--skip-confirmation")
	if r := u.Restarted("plain"); r != "default" {
		u.Errorf("after the second webhook is gone, the proxy has the revision %q", r)
	}
}

// defaultTag puts a revision in the place of the control plane without one, and takes that back.
func (u *user) defaultTag() {
	u.Helper()
	u.Deploy("plain")
	u.both()
	u.Refused(1, "--overwrite makes them idle", "tag", "set", "default", "--revision", "canary")
	u.Done("tag", "set", "default", "--revision", "canary", "--overwrite")
	if r := u.Restarted("plain"); r != "canary" {
		u.Errorf("with the tag default, the proxy has the revision %q", r)
	}
	name := u.Pods("plain")[0].Name + ".plain"
	u.Done("explain", "injection", name, "--revision", "canary")
	u.Refused(1, "the namespace has the revision canary", "explain", "injection", name)
	u.Done("upgrade") // it must leave the webhooks of the control plane without a revision idle
	if r := u.Restarted("plain"); r != "canary" {
		u.Errorf("after an upgrade of the other control plane, the proxy has the revision %q", r)
	}
	if levels := u.Levels("--revision", "canary"); levels["error"] != nil {
		u.Errorf("check: %v", levels["error"])
	}
	u.FailsClosed("istiod-default-validator")
	if out, err := u.Applied(operator.Invalid("plain")); err == nil || !strings.Contains(out, `admission webhook "validation.istio.io" denied`) {
		u.Errorf("an object that is invalid: %v\n%s", err, out)
	}
	u.Done("tag", "remove", "default", "-y")
	if r := u.Restarted("plain"); r != "default" {
		u.Errorf("without the tag, the proxy has the revision %q", r)
	}
}
