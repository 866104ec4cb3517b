package installation

import (
	"encoding/json"
	"strings"
	"testing"
)

// restarted makes the pods of the shop of a namespace again, and returns the revision of their proxies.
func (u *user) restarted(namespace string) string {
	u.Helper()
	u.kubectl("rollout", "restart", "deployment/web", "-n", namespace)
	u.rolledOut(namespace, "web")
	for _, p := range u.pods(namespace) {
		if !p.Injected {
			u.Errorf("the pod %s of %s has no proxy", p.Name, namespace)
		}
		return p.Revision
	}
	return ""
}

// tags returns the tags of the cluster as TAG=REVISION with their namespaces.
func (u *user) tags() string {
	u.Helper()
	var list []struct {
		Tag, Revision string
		Namespaces    []string
	}
	u.must(json.Unmarshal([]byte(u.done("tag", "list", "-o", "json")), &list))
	var all []string
	for _, one := range list {
		all = append(all, one.Tag+"="+one.Revision+"("+strings.Join(one.Namespaces, ",")+")")
	}
	return strings.Join(all, " ")
}

// TestTags: namespaces move from one revision to another and back, with a tag of their own and with the tag default.
func TestTags(t *testing.T) {
	u := on(t)
	before := u.objects()
	u.refused(1, "no control plane has the revision canary", "tag", "set", "prod", "--revision", "canary")
	for _, revision := range []string{"default", "canary"} {
		u.done("install", "-f", u.values, "--revision", revision)
		t.Cleanup(func() { u.run("uninstall", "--revision", revision) })
	}
	u.until("the roots of the webhooks", func() bool {
		return u.rooted("istio-sidecar-injector")() && u.rooted("istio-sidecar-injector-canary")()
	})
	u.namespace("shop", "istio.io/rev=prod")
	u.namespace("plain", "istio-injection=enabled")
	u.ownTag()
	u.defaultTag()
	u.kubectl("delete", "namespace", "shop", "plain")
	u.done("uninstall")
	u.done("uninstall", "--revision", "canary", "--crds")
	u.unchanged(before)
}

// ownTag moves the namespace shop, which has a tag of its own.
func (u *user) ownTag() {
	u.Helper()
	u.refused(1, "a control plane has the revision canary", "tag", "set", "canary", "--revision", "default")
	u.refused(2, "write lower-case letters", "tag", "set", "Prod!", "--revision", "default")
	u.done("tag", "set", "prod", "--revision", "default")
	u.deploy("shop")
	if r := u.restarted("shop"); r != "default" {
		u.Errorf("the proxy has the revision %q", r)
	}
	u.refused(1, "move it with --overwrite", "tag", "set", "prod", "--revision", "canary")
	if out := u.done("tag", "generate", "prod", "--revision", "canary"); !strings.Contains(out, "name: istiod-canary") || !strings.Contains(out, "caBundle") {
		u.Errorf("the objects of the tag are\n%s", out)
	}
	u.done("tag", "set", "prod", "--revision", "canary", "--overwrite")
	if r := u.restarted("shop"); r != "canary" {
		u.Errorf("after the tag has moved, the proxy has the revision %q", r)
	}
	if is := u.tags(); is != "prod=canary(shop)" {
		u.Errorf("the tags are %s", is)
	}
	u.keepsRoots("istio-revision-tag-prod")
	u.refused(1, "the tag prod points to the revision canary", "uninstall", "--revision", "canary")
	u.done("tag", "set", "prod", "--revision", "default", "--overwrite")
	if r := u.restarted("shop"); r != "default" {
		u.Errorf("after the tag is back, the proxy has the revision %q", r)
	}
	u.refused(1, "in use by the namespaces shop", "tag", "remove", "prod")
	u.done("tag", "remove", "prod", "--skip-confirmation")
	u.refused(1, "there is no tag prod", "tag", "remove", "prod")
}

// keepsRoots takes the roots out of a configuration, and waits until the control plane has written them again.
func (u *user) keepsRoots(configuration string) {
	u.Helper()
	u.kubectl("patch", "mutatingwebhookconfiguration", configuration, "--type=json", "-p", `[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]`)
	u.until("the roots of "+configuration, u.rooted(configuration))
}

// both lets the webhooks of two revisions select the same pods: these get one proxy that works, and check names both.
func (u *user) both() {
	u.Helper()
	objects := u.done("tag", "generate", "default", "--revision", "canary")
	u.apply(objects)
	u.restarted("plain")
	found := strings.Join(u.levels()["error"], "\n")
	if !strings.Contains(found, "are injected by several: istio-revision-tag-default, istio-sidecar-injector") {
		u.Errorf("check does not find webhooks that inject the same pods: %s", found)
	}
	u.done("tag", "remove", "default", "--skip-confirmation")
	if r := u.restarted("plain"); r != "default" {
		u.Errorf("after the second webhook is gone, the proxy has the revision %q", r)
	}
}

// defaultTag puts a revision in the place of the control plane without one, and takes that back.
func (u *user) defaultTag() {
	u.Helper()
	u.deploy("plain")
	u.both()
	u.refused(1, "--overwrite makes them idle", "tag", "set", "default", "--revision", "canary")
	u.done("tag", "set", "default", "--revision", "canary", "--overwrite")
	if r := u.restarted("plain"); r != "canary" {
		u.Errorf("with the tag default, the proxy has the revision %q", r)
	}
	name := u.pods("plain")[0].Name + ".plain"
	u.done("explain", "injection", name, "--revision", "canary")
	u.refused(1, "the namespace has the revision canary", "explain", "injection", name)
	u.done("upgrade") // it must leave the webhooks of the control plane without a revision idle
	if r := u.restarted("plain"); r != "canary" {
		u.Errorf("after an upgrade of the other control plane, the proxy has the revision %q", r)
	}
	if levels := u.levels("--revision", "canary"); levels["error"] != nil {
		u.Errorf("check: %v", levels["error"])
	}
	u.failsClosed("istiod-default-validator")
	if out, err := u.applied(invalid("plain")); err == nil || !strings.Contains(out, `admission webhook "validation.istio.io" denied`) {
		u.Errorf("an object that is invalid: %v\n%s", err, out)
	}
	u.done("tag", "remove", "default", "-y")
	if r := u.restarted("plain"); r != "default" {
		u.Errorf("without the tag, the proxy has the revision %q", r)
	}
}
