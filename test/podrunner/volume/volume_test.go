package volume_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/test/podrunner/container"
	"github.com/pilotmesh/pilot/test/podrunner/volume"
)

// listing is what a reader sees: "name mode content", and how many directories there are behind it.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	hidden := 0
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path, name string)
	walk = func(path, name string) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			inside, _ := os.ReadDir(path)
			for _, entry := range inside {
				walk(filepath.Join(path, entry.Name()), name+"/"+entry.Name())
			}
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, name+" "+info.Mode().String()+" "+string(text))
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			if entry.IsDir() {
				hidden++
			}
			continue
		}
		walk(filepath.Join(dir, entry.Name()), entry.Name())
	}
	if hidden != 1 {
		t.Errorf("%d directories of data, want 1: old ones must go", hidden)
	}
	slices.Sort(lines)
	return lines
}

func file(text string, mode fs.FileMode) volume.File {
	return volume.File{Data: []byte(text), Mode: mode}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	steps := []struct {
		files   map[string]volume.File
		changed bool
		want    []string
	}{
		{map[string]volume.File{"a": file("1", 0o644), "d/b": file("2", 0o400)}, true, []string{"a -rw-r--r-- 1", "d/b -r-------- 2"}},
		{map[string]volume.File{"a": file("1", 0o644), "d/b": file("2", 0o400)}, false, []string{"a -rw-r--r-- 1", "d/b -r-------- 2"}},
		{map[string]volume.File{"a": file("3", 0o644), "c": file("4", 0o644)}, true, []string{"a -rw-r--r-- 3", "c -rw-r--r-- 4"}},
		{map[string]volume.File{}, true, nil},
	}
	for n, step := range steps {
		changed, err := volume.Write(dir, step.files, nil)
		if err != nil || changed != step.changed {
			t.Errorf("step %d: changed %v, error %v", n, changed, err)
		}
		if got := listing(t, dir); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %q, want %q", n, got, step.want)
		}
	}
}

// A reader must never see a mixture, nor nothing.
func TestWriteIsAtomic(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if _, err := volume.Write(dir, map[string]volume.File{"a": file(text, 0o644), "b": file(text, 0o644)}, nil); err != nil {
			t.Error(err)
		}
	}
	write("0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 300 {
			write(string(rune('0' + n%10)))
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		data, err := os.Readlink(filepath.Join(dir, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := os.ReadFile(filepath.Join(dir, data, "a"))
		b, errB := os.ReadFile(filepath.Join(dir, data, "b"))
		if errA == nil && errB == nil && string(a) != string(b) {
			t.Fatalf("one set of files has %q and %q", a, b)
		}
		if _, err := os.ReadFile(filepath.Join(dir, "a")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

type objects struct{}

func (objects) ConfigMap(name string) (*v1.ConfigMap, error) {
	if name != "c" {
		return nil, container.ErrNotFound
	}
	return &v1.ConfigMap{Data: map[string]string{"k": "config"}, BinaryData: map[string][]byte{"bin": {1}}}, nil
}

func (objects) Secret(name string) (*v1.Secret, error) {
	if name != "s" {
		return nil, container.ErrNotFound
	}
	return &v1.Secret{Data: map[string][]byte{"k": []byte("secret")}}, nil
}

func (objects) Token(*v1.ServiceAccountTokenProjection) ([]byte, error) { return []byte("token"), nil }

func TestFiles(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"b": "2", "a": "1"}}}
	for _, test := range []struct{ source, want string }{
		{`configMap: {name: c}`, "bin=\x01 -rw-r--r--,k=config -rw-r--r--"},
		{`configMap: {name: c, items: [{key: k, path: x/y, mode: 256}]}`, "x/y=config -r--------"},
		{`configMap: {name: c, items: [{key: none, path: x}]}`, "references non-existent config key: none"},
		{`configMap: {name: none}`, `configmap "none" not found`},
		{`configMap: {name: none, optional: true}`, ""},
		{`secret: {secretName: s, defaultMode: 256}`, "k=secret -r--------"},
		{`secret: {secretName: none}`, `secret "none" not found`},
		{`downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}`, "l=a=\"1\"\nb=\"2\" -rw-r--r--"},
		{`projected: {sources: [{secret: {name: s}}, {serviceAccountToken: {path: token}}, {configMap: {name: c, items: [{key: k, path: ca}]}}]}`,
			"ca=config -rw-r--r--,k=secret -rw-r--r--,token=token -rw-r--r--"},
	} {
		source := new(v1.VolumeSource)
		if err := yaml.UnmarshalStrict([]byte(test.source), source); err != nil {
			t.Fatal(err)
		}
		files, err := volume.Files(source, container.Facts{Pod: pod}, objects{}, objects{})
		var lines []string
		for name, file := range files {
			lines = append(lines, name+"="+string(file.Data)+" "+file.Mode.String())
		}
		slices.Sort(lines)
		got := strings.Join(lines, ",")
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.source, got, test.want)
		}
	}
}

// TestPlaces: a volume has the directories at which containers mount other volumes in it, and keeps them when its files change.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	mounts := []v1.VolumeMount{
		{Name: "roots", MountPath: "/var/run/secrets/istio"}, {Name: "crl", MountPath: "/var/run/secrets/istio/crl/"}, {Name: "other", MountPath: "/var/run/secrets/istio2"},
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "proxy", VolumeMounts: mounts}}}}
	for _, text := range []string{"one", "two"} {
		if _, err := volume.Write(dir, map[string]volume.File{"root-cert.pem": {Data: []byte(text), Mode: 0o644}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := volume.Places(dir, pod, "roots"); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(dir, "crl")); err != nil || !info.IsDir() {
			t.Errorf("the place of the other volume: %v", err)
		}
	}
	place := filepath.Join(dir, "crl")
	before, err := os.Stat(place)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volume.Write(dir, map[string]volume.File{"other.pem": {Data: []byte("three"), Mode: 0o644}}, nil); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(place); err != nil || !os.SameFile(before, after) {
		t.Errorf("the place is another one after a change of the files: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 4 { // ..data, its directory, crl and other.pem
		t.Errorf("the volume has %v, %v", names, err)
	}
}
