package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// kinds returns the resources with configuration of a mesh that the API server has, each in one version: the preferred one if it has the resource. left are
// the groups that the API server does not describe. An error means that it describes none.
func kinds(ctx context.Context, client rest.Interface) (all []schema.GroupVersionResource, left []string, err error) {
	var list metav1.APIGroupList
	if err := read(ctx, client, "/apis", &list); err != nil {
		return nil, nil, err
	}
	groups := append([]metav1.APIGroup{{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1", Version: "v1"}}}}, list.Groups...)
	for _, group := range groups {
		if !istios(group.Name) && group.Name != "" && group.Name != "networking.k8s.io" {
			continue
		}
		seen := map[string]bool{}
		// The preferred version comes first.
		versions := append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...)
		for n, v := range versions {
			if v.Version == "" || n > 0 && slices.Contains(versions[:n], v) {
				continue
			}
			path := "/apis/" + v.GroupVersion
			if group.Name == "" {
				path = "/api/v1"
			}
			var resources metav1.APIResourceList
			if err := read(ctx, client, path, &resources); err != nil {
				if !apierrors.IsNotFound(err) { // it was removed after the list was read
					left = append(left, fmt.Sprintf("kinds that the API server does not describe: %s: %v", v.GroupVersion, err))
				}
				continue
			}
			for _, r := range resources.APIResources {
				if seen[r.Name] || !isConfiguration(group.Name, r) {
					continue
				}
				seen[r.Name] = true
				all = append(all, schema.GroupVersionResource{Group: group.Name, Version: v.Version, Resource: r.Name})
			}
		}
	}
	return all, left, nil
}

// read reads a page of the API server.
func read(ctx context.Context, client rest.Interface, path string, into any) error {
	data, err := client.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// istios reports whether all kinds of a group are configuration of a mesh.
func istios(group string) bool {
	return strings.HasSuffix(group, ".istio.io") && group != "install.istio.io" || group == "gateway.networking.k8s.io"
}

// isConfiguration reports whether objects of a resource are configuration of a mesh.
func isConfiguration(group string, r metav1.APIResource) bool {
	other := group == "networking.k8s.io" && r.Name == "ingresses" || group == "" && r.Name == "namespaces"
	return (istios(group) || other) && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list")
}
