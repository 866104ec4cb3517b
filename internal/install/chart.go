package install

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/manifests"
)

// The charts.
const (
	ControlPlane = "pilot"
	Gateway      = "pilot-gateway"
	Plugin       = "pilot-cni"
	Definitions  = "pilot-crds"
)

// manager is the value of the label app.kubernetes.io/managed-by, and the field manager, of all objects that this package makes.
const manager = "pilotctl"

const managedBy = "app.kubernetes.io/managed-by"

// Release names a rendering: the values of .Release in templates.
type Release struct {
	Name, Namespace string
	// Version is the version of the images, if the values name none; empty for the version of the chart.
	Version string
}

// load reads a chart.
func load(name string) (*chart.Chart, error) {
	root := path.Join("charts", name)
	var files []*archive.BufferedFile
	err := fs.WalkDir(manifests.Charts, root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(manifests.Charts, file)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(file, root+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart %s: %w", name, err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("reading the chart %s: %w", name, err)
	}
	return c, nil
}

// Render returns the objects of a chart, in the order in which they are applied. The error names the values that cannot be used.
func Render(name string, r Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	c, err := load(name)
	if err != nil {
		return nil, err
	}
	if r.Version != "" {
		c.Metadata.AppVersion = r.Version
	}
	if err := checkValues(c, values); err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValuesWithSchemaValidation(c, values, options, nil, true)
	if err != nil {
		return nil, fmt.Errorf("the values of the chart %s: %w", name, err)
	}
	if release, ok := top["Release"].(map[string]any); ok {
		release["Service"] = manager
	}
	files, err := engine.Render(c, top)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart %s: %w", name, err)
	}
	var all []*unstructured.Unstructured
	for file, text := range files {
		if path.Ext(file) != ".yaml" {
			continue
		}
		objects, err := parse([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("rendering the chart %s: %s: %w", name, file, err)
		}
		all = append(all, objects...)
	}
	slices.SortFunc(all, inOrder)
	return all, nil
}

// parse reads the objects of YAML documents.
func parse(text []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, err
		}
		if len(o.Object) == 0 {
			continue
		}
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[managedBy] = manager
		o.SetLabels(labels)
		all = append(all, o)
	}
}

// order are the kinds in the order in which they are applied: objects before their users. Webhooks come last, because from then on
// API servers ask the control plane.
var order = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"NetworkPolicy", "PodDisruptionBudget", "Service", "Deployment", "DaemonSet", "HorizontalPodAutoscaler",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

// inOrder compares objects by the order in which they are applied.
func inOrder(a, b *unstructured.Unstructured) int {
	return cmp.Or(
		cmp.Compare(slices.Index(order, a.GetKind()), slices.Index(order, b.GetKind())),
		strings.Compare(a.GetNamespace(), b.GetNamespace()),
		strings.Compare(a.GetName(), b.GetName()),
	)
}

// isWebhook reports whether an object makes API servers call the control plane.
func isWebhook(kind string) bool {
	return strings.HasSuffix(kind, "WebhookConfiguration")
}
