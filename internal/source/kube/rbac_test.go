package kube

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// TestPermissions checks that manifests/rbac.yaml lets the control plane read objects of every kind, and write their statuses.
func TestPermissions(t *testing.T) {
	role := clusterRole(t)
	for _, k := range api.Kinds() {
		verbs := []string{"get", "list", "watch"}
		if k.BuiltIn() {
			verbs = verbs[1:] // no status is written, so no object is read by its name
		}
		for _, verb := range verbs {
			if !allows(role.Rules, k.Group(), k.Plural(), verb) {
				t.Errorf("the account may not %s %s of %s", verb, k.Plural(), k.Group())
			}
		}
		if !k.BuiltIn() && !allows(role.Rules, k.Group(), k.Plural()+"/status", "update") {
			t.Errorf("the account may not write the statuses of %s of %s", k.Plural(), k.Group())
		}
	}
}

// TestPermissionsForUnsupportedKinds checks that the same role lets the control plane see which unsupported objects there are.
func TestPermissionsForUnsupportedKinds(t *testing.T) {
	role := clusterRole(t)
	for _, k := range api.UnsupportedKinds() {
		_, of := unsupportedName(k)
		for _, verb := range []string{"list", "watch"} {
			if !allows(role.Rules, of.Group, of.Resource, verb) {
				t.Errorf("the account may not %s %s of %s", verb, of.Resource, of.Group)
			}
		}
	}
}

// TestPermissionForKeptVersions checks that the role in the namespace of the control plane lets it read and write the kept versions of policies.
func TestPermissionForKeptVersions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var role rbac.Role
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: Role\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range kept.Parts {
		named := slices.DeleteFunc(slices.Clone(role.Rules), func(r rbac.PolicyRule) bool { return !slices.Contains(r.ResourceNames, KeptMap(i)) })
		for _, verb := range []string{"get", "list", "watch", "update"} {
			if !allows(named, "", "configmaps", verb) {
				t.Errorf("the account may not %s the ConfigMap %s", verb, KeptMap(i))
			}
		}
	}
}

func allows(rules []rbac.PolicyRule, group, resource, verb string) bool {
	return slices.ContainsFunc(rules, func(r rbac.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}

// clusterRole returns the ClusterRole of the manifests.
func clusterRole(t *testing.T) (role rbac.ClusterRole) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
		}
	}
	return role
}
