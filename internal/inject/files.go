package inject

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	networking "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/inject/owner"
	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// Outcome is what became of one workload of a file.
type Outcome struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Line is where the document of the workload begins.
	Line     int      `json:"line"`
	Decision Decision `json:"decision"`
	Warnings []string `json:"warnings,omitempty"`
	// Refused says why the workload cannot be injected although it should be; empty if it can.
	Refused string `json:"refused,omitempty"`
}

// String names the workload.
func (o Outcome) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// File injects the workloads of a file of YAML or JSON documents, also those in Lists. Everything else stays as it is, byte for byte. With a
// namespace, it does what a cluster would do with the pods in that namespace. It reports every workload. If one is refused, there is an
// error that names it, and no text.
func (i *Injector) File(name string, data []byte, namespace *Namespace) ([]byte, []Outcome, error) {
	texts, problem := api.Split(name, data)
	if problem != nil {
		return nil, nil, errors.New(problem.String())
	}
	f := &file{injector: i, namespace: namespace}
	out := make([][]byte, 0, len(texts))
	for _, t := range texts {
		f.line = t.Line()
		text, err := f.document(t.Bytes())
		if err != nil {
			f.errs = append(f.errs, fmt.Errorf("%s:%d: %w", name, f.line, err))
		}
		out = append(out, text)
	}
	if len(f.errs) > 0 {
		return nil, f.outcomes, errors.Join(f.errs...)
	}
	if !f.changed {
		return data, f.outcomes, nil
	}
	return joinDocuments(out), f.outcomes, nil
}

// joinDocuments writes documents one behind the other.
func joinDocuments(docs [][]byte) []byte {
	var b bytes.Buffer
	for n, d := range docs {
		if n > 0 && !bytes.HasPrefix(d, []byte("---")) {
			b.WriteString("---\n")
		}
		b.Write(d)
		if !bytes.HasSuffix(d, []byte("\n")) {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// file is the injection of one file.
type file struct {
	injector  *Injector
	namespace *Namespace
	line      int
	changed   bool
	outcomes  []Outcome
	errs      []error
}

// document returns the text of a document with its workloads injected.
func (f *file) document(text []byte) ([]byte, error) {
	b, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("the document is no YAML: %w", err)
	}
	after, err := f.object(b)
	if err != nil || after == nil {
		return text, err
	}
	f.changed = true
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return append(after, '\n'), nil
	}
	return yaml.JSONToYAML(after)
}

// object returns an injected object, nil if it stays as it is.
func (f *file) object(b []byte) ([]byte, error) {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(b, &head) != nil {
		return nil, nil //nolint:nilerr // it is no object of Kubernetes
	}
	if head.APIVersion == "v1" && head.Kind == "List" {
		return f.list(b, head.Items)
	}
	path := owner.TemplatePath(head.APIVersion, head.Kind)
	if path == nil {
		return nil, nil
	}
	return f.workload(b, path)
}

// list returns an injected List, nil if no item changes.
func (f *file) list(b []byte, items []json.RawMessage) ([]byte, error) {
	changed := false
	for n, item := range items {
		after, err := f.object(item)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", n, err)
		}
		if after != nil {
			items[n], changed = after, true
		}
	}
	if !changed {
		return nil, nil
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(b, &whole); err != nil {
		return nil, err
	}
	var err error
	if whole["items"], err = json.Marshal(items); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}

// workload returns an injected workload, nil if it stays as it is.
func (f *file) workload(b []byte, path []string) ([]byte, error) {
	w, err := openWorkload(b, path)
	if err != nil {
		return nil, err
	}
	namespace := cmp.Or(w.pod.Namespace, w.owner.Namespace)
	if f.namespace != nil {
		namespace = cmp.Or(namespace, f.namespace.Name)
	}
	w.owner.Namespace = namespace
	w.pod.Namespace = namespace
	o := Outcome{Kind: w.owner.Kind, Namespace: namespace, Name: w.owner.Name, Line: f.line}
	if len(path) == 0 {
		o.Kind, o.Name = "Pod", cmp.Or(w.pod.Name, w.pod.GenerateName)
	}
	o.Decision = f.injector.Decide(&w.pod, f.namespace)
	if !o.Decision.Inject {
		f.outcomes = append(f.outcomes, o)
		return nil, nil
	}
	result, err := f.injector.Inject(Request{Pod: &w.pod, Owner: w.owner, Namespace: f.namespace})
	o.Warnings = result.Warnings
	if err != nil {
		o.Refused = err.Error()
		f.outcomes = append(f.outcomes, o)
		return nil, fmt.Errorf("%v cannot be injected: %w", o, err)
	}
	f.outcomes = append(f.outcomes, o)
	return w.write(result.Pod)
}

// opened is a workload of a file.
type opened struct {
	holders  []map[string]json.RawMessage // the objects on the path to the template
	path     []string
	template []byte // the template as a pod
	pod      corev1.Pod
	owner    owner.Workload
}

// openWorkload reads a workload. The path leads to its pod template.
func openWorkload(b []byte, path []string) (*opened, error) {
	w := &opened{path: path}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("the metadata of the object: %w", err)
	}
	w.owner = owner.Workload{APIVersion: head.APIVersion, Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}
	at := b
	for n := 0; ; n++ {
		var level map[string]json.RawMessage
		if err := json.Unmarshal(at, &level); err != nil || level == nil {
			return nil, fmt.Errorf("%s %s has no %s", head.Kind, head.Metadata.Name, strings.Join(path[:n], "."))
		}
		w.holders = append(w.holders, level)
		if n == len(path) {
			break
		}
		at = level[path[n]]
	}
	template := w.holders[len(path)]
	for _, name := range []string{"metadata", "spec"} {
		if s := string(template[name]); s == "" || s == "null" {
			template[name] = json.RawMessage("{}")
		}
	}
	var err error
	if w.template, err = json.Marshal(template); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(w.template, &w.pod); err != nil {
		return nil, fmt.Errorf("the pods of %s %s: %w", head.Kind, head.Metadata.Name, err)
	}
	if len(path) == 0 {
		w.owner = owner.Of(&w.pod)
	}
	return w, nil
}

// write returns the workload with the pod in the place of its template. Fields that this version of the program does not know stay.
func (w *opened) write(after *corev1.Pod) ([]byte, error) {
	text, err := tree.Patch(&w.pod, after)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, fmt.Errorf("the patch of the pod: %w", err)
	}
	at, err := patch.Apply(w.template)
	if err != nil {
		return nil, fmt.Errorf("the patch of the pod: %w", err)
	}
	for n, name := range slices.Backward(w.path) {
		w.holders[n][name] = at
		if at, err = json.Marshal(w.holders[n]); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// ReadProxyConfigs returns the ProxyConfigs among the objects of a file, and the problems of ProxyConfigs that cannot be used.
func ReadProxyConfigs(name string, data []byte) (list []ProxyConfig, problems []api.Problem) {
	for _, d := range api.Decode(name, data) {
		if d.Key.Kind != api.KindProxyConfig {
			continue
		}
		if d.Object == nil {
			problems = append(problems, d.Problems...)
		} else if spec, ok := d.Object.Spec.(*networking.ProxyConfig); ok {
			list = append(list, ProxyConfig{d.Key.Namespace, d.Key.Name, d.Object.Created, spec})
		}
	}
	return list, problems
}
