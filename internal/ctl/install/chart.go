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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/run/template"
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

// chart is a chart of this program.
type chart struct {
	name, version string
	// appVersion is the version of the images.
	appVersion string
	values     map[string]any
	schema     []byte
	// templates are texts by the names that errors call them, and files all files by their names in the chart.
	templates map[string]string
	files     map[string][]byte
}

// load reads a chart.
func load(name string) (*chart, error) {
	root := path.Join("charts", name)
	c := &chart{templates: map[string]string{}, files: map[string][]byte{}}
	err := fs.WalkDir(manifests.Charts, root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(manifests.Charts, file)
		file = strings.TrimPrefix(file, root+"/")
		if c.files[file] = data; strings.HasPrefix(file, "templates/") {
			c.templates[path.Join(name, file)] = string(data)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart %s: %w", name, err)
	}
	var about struct{ Name, Version, AppVersion string }
	err = errors.Join(yaml.Unmarshal(c.files["Chart.yaml"], &about), yaml.Unmarshal(c.files["values.yaml"], &c.values))
	if err != nil {
		return nil, fmt.Errorf("reading the chart %s: %w", name, err)
	}
	c.name, c.version, c.appVersion, c.schema = about.Name, about.Version, about.AppVersion, c.files["values.schema.json"]
	return c, nil
}

// Render returns the objects of a chart, in the order in which they are applied. The error names the values that cannot be used.
func Render(name string, r Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	c, err := load(name)
	if err != nil {
		return nil, err
	}
	if r.Version != "" {
		c.appVersion = r.Version
	}
	if err := checkValues(c, values); err != nil {
		return nil, err
	}
	files, err := c.render(r, values)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart %s: %w", name, err)
	}
	var all []*unstructured.Unstructured
	for file, text := range files {
		objects, err := parse([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("rendering the chart %s: %s: %w", name, file, err)
		}
		all = append(all, objects...)
	}
	slices.SortFunc(all, inOrder)
	return all, nil
}

// kubeVersion is the version of Kubernetes that charts are rendered for.
const kubeVersion = "v1.36.0"

// render returns the texts of the templates of a chart that are YAML.
func (c *chart) render(r Release, values map[string]any) (map[string]string, error) {
	var set *template.Set
	more := functions()
	more["include"] = func(args ...any) (any, error) {
		name, err := textAt(args, 0)
		if err != nil || len(args) != 2 {
			return nil, errors.Join(errArguments, err)
		}
		return set.Render(name, args[1])
	}
	set, err := template.Parse(c.templates, more)
	if err != nil {
		return nil, err
	}
	set.Strict = true
	top := map[string]any{
		"Values":       coalesce(values, c.values),
		"Chart":        map[string]any{"Name": c.name, "Version": c.version, "AppVersion": c.appVersion},
		"Capabilities": map[string]any{"KubeVersion": map[string]any{"Version": kubeVersion}},
		"Release":      map[string]any{"Name": r.Name, "Namespace": r.Namespace, "IsUpgrade": false, "IsInstall": true, "Revision": 1, "Service": manager},
		"Files": map[string]any{"Get": template.Function(func(args ...any) (any, error) {
			name, err := textAt(args, 0)
			return string(c.files[name]), err
		})},
	}
	files := map[string]string{}
	for name := range c.templates {
		if path.Ext(name) != ".yaml" {
			continue
		}
		text, err := set.Render(name, top)
		if refused := (refusal{}); errors.As(err, &refused) {
			_, place, _ := strings.Cut(err.Error(), ": ")
			place, _, _ = strings.Cut(place, ": ")
			return nil, fmt.Errorf("execution error at (%s): %w", place, refused)
		}
		if err != nil {
			return nil, err
		}
		files[name] = strings.ReplaceAll(text, "<no value>", "") // as Helm has it
	}
	return files, nil
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
