package install

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotmesh/pilot/manifests"
)

// byHelm renders a chart with the library of Helm.
func byHelm(name string, r Release, values map[string]any) ([]*unstructured.Unstructured, error) {
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
		return nil, err
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	able := common.DefaultCapabilities.Copy()
	able.KubeVersion = common.KubeVersion{Version: kubeVersion, Major: "1", Minor: "36"}
	top, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}, able)
	if err != nil {
		return nil, err
	}
	if release, ok := top["Release"].(map[string]any); ok {
		release["Service"] = manager
	}
	texts, err := engine.Render(c, top)
	var all []*unstructured.Unstructured
	for file, text := range texts {
		if err == nil && path.Ext(file) == ".yaml" {
			var objects []*unstructured.Unstructured
			objects, err = parse([]byte(text))
			all = append(all, objects...)
		}
	}
	slices.SortFunc(all, inOrder)
	return all, err
}

// charted are values of a chart.
type charted struct{ chart, namespace, values, set string }

// golden returns the values of the golden files.
func golden(t *testing.T) (all []charted) {
	t.Helper()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]string{"chart": ControlPlane, "namespace": "istio-system"}
		for _, f := range a.Files {
			in[f.Name] = strings.TrimSuffix(string(f.Data), "\n")
		}
		all = append(all, charted{in["chart"], in["namespace"], in["values.yaml"], in["set"]})
	}
	return all
}

// TestLikeHelm: charts rendered here equal the ones that Helm renders, whose values are refused alike, for the values of the golden files and others.
func TestLikeHelm(t *testing.T) {
	all := golden(t)
	for _, values := range []string{
		"", "pilot: {resources: null}", "resources: null", "pilot: {env: {A: x, B: null}}\nenv: {C: \"1\"}", "meshConfig: {defaultConfig: null, trustDomain: null}",
		"meshConfig: {defaultConfig: {discoveryAddress: a:1, concurrency: 2}, accessLogFile: \"\", enableTracing: false}", "global: null", "pilot: null",
		"meshConfig: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}\npilot: {replicaCount: 3, autoscaleEnabled: false}", "nodeSelector: {a: b}\npilot: {nodeSelector: {c: d}}",
		"taint: {enabled: true}", "revision: canary\nrevisionTags: [prod, test]", "global: {imagePullSecrets: [a, b], networkPolicy: {enabled: true}}", "labels: {app: x, istio: null, more: y}",
		"nodeSelector: {kubernetes.io/os: windows, a: b}", "serviceAccount: {create: false}", "replicaCount: 1000000",
	} {
		for _, chart := range []string{ControlPlane, Gateway, Plugin, Definitions} {
			all = append(all, charted{chart, "mesh", values, ""})
		}
	}
	equal := 0
	for _, in := range all {
		values, err := ReadValues([]File{{"values.yaml", []byte(in.values)}}, strings.Fields(in.set))
		if err != nil {
			t.Fatal(err)
		}
		release := Release{Name: "gateway", Namespace: in.namespace}
		objects, failed := Render(in.chart, release, values)
		others, failedThere := byHelm(in.chart, release, values)
		if (failed == nil) != (failedThere == nil) {
			t.Errorf("%v: %v; with Helm: %v", in, failed, failedThere)
		}
		if failed != nil || failedThere != nil {
			continue
		}
		is, err := Print(objects)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Print(others)
		if err != nil {
			t.Fatal(err)
		}
		if string(is) != string(want) {
			t.Errorf("%v:\n%s\nwith Helm:\n%s", in, is, want)
		}
		equal++
	}
	if equal < 30 {
		t.Errorf("only %d of %d values could be rendered", equal, len(all))
	}
}
