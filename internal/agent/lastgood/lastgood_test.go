package lastgood

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/agent/disk/disktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	routes   = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	node     = "sidecar~10.0.0.1~app.shop~shop.svc.cluster.local"
)

// resource is a resource with a name, a version and some content.
func resource(t testing.TB, name, version string) *discoveryv3.Resource {
	t.Helper()
	body, err := anypb.New(wrapperspb.String(name + " " + version))
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: name, Version: version, Resource: body}
}

// text lists the resources of a type.
func text(s *Store, typeURL string) string {
	var list []string
	for _, r := range s.All(typeURL) {
		list = append(list, r.GetName()+"@"+r.GetVersion())
	}
	return strings.Join(list, " ")
}

func open(t testing.TB, path string) *Store { return Open(path, node, slog.New(slog.DiscardHandler)) }

// checkState checks that the counts of a store match its content.
func checkState(t *testing.T, s *Store) {
	t.Helper()
	resources, bytes := 0, 0
	for _, all := range s.types {
		for _, r := range all {
			resources, bytes = resources+1, bytes+proto.Size(r)
		}
	}
	if is := s.State(); is.Resources != resources || is.Bytes != bytes || s.Empty() != (resources == 0) {
		t.Errorf("the store says %+v, and has %d resources with %d bytes", is, resources, bytes)
	}
}

func TestAccept(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "f"))
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "b", "1"), resource(t, "a", "1")}, nil)
	s.Accept(routes, []*discoveryv3.Resource{resource(t, "a", "7")}, nil)
	checkState(t, s)
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "b", "22"), resource(t, "c", "1")}, []string{"a", "unknown"})
	checkState(t, s)
	if got := text(s, clusters) + ", " + text(s, routes); got != "b@22 c@1, a@7" {
		t.Error(got)
	}
	list, missing := s.Named(clusters, []string{"c", "a"})
	if len(list) != 1 || list[0].GetName() != "c" || !slices.Equal(missing, []string{"a"}) {
		t.Errorf("%v, missing %v", list, missing)
	}
	s.Keep(clusters, []string{"c", "z"})
	s.Forget(routes, "a")
	checkState(t, s)
	if got := text(s, clusters) + ", " + text(s, routes); got != "c@1, " {
		t.Error(got)
	}
}

// TestFile: accepted resources are in the file a moment later, also if they change all the time, and when the agent ends.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		stored := func() string {
			synctest.Wait()
			return text(open(t, path), clusters)
		}
		s.Accept(clusters, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
		if got := stored(); got != "" {
			t.Errorf("at once: %s", got)
		}
		<-time.After(settle)
		if got := stored(); got != "a@1" || s.State().Saved.IsZero() {
			t.Errorf("after a moment: %s, %v", got, s.State())
		}
		for n := range 40 { // in 20 seconds
			s.Accept(clusters, []*discoveryv3.Resource{resource(t, "b", string(rune('A'+n)))}, nil)
			<-time.After(500 * time.Millisecond)
		}
		if got := stored(); !strings.HasPrefix(got, "a@1 b@") {
			t.Errorf("while it changes: %s", got)
		}
		s.Accept(clusters, nil, []string{"a", "b"})
		s.Accept(routes, []*discoveryv3.Resource{resource(t, "r", "1")}, nil)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		again := open(t, path)
		if got := text(again, clusters) + ", " + text(again, routes); got != ", r@1" {
			t.Errorf("after the end: %s", got)
		}
		checkState(t, again)
	})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there is more than the file: %v, %v", left, err)
	}
}

// TestUnusable: an invalid file is not used, and the state has the reason.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	s := open(t, path)
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
	s.write()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(old, new string) string {
		body := strings.Replace(string(good[:len(good)-sha256.Size]), old, new, 1)
		sum := sha256.Sum256([]byte(body))
		return body + string(sum[:])
	}
	for _, c := range []struct{ text, says string }{
		{string(good), ""},
		{"", "it is cut off"},
		{string(good[:len(good)-1]), "its checksum is wrong"},
		{string(good[:40]), "it is no configuration"},
		{strings.Repeat("x", 4*maxHeader) + "\n" + string(good), "it is no configuration"},
		{sealed("app.shop", "bad.shop"), `it is of the proxy "sidecar~10.0.0.1~bad.shop~`},
		{sealed(`Format":1`, `Format":2`), "it has format 2, and this agent reads 1"},
		{sealed(`"types":1`, `"types":2`), "it cannot be read"},
		{sealed(`"types":1`, `"types":0`), "there is more in it"},
		{sealed(`"types":1`, `"types":999999999`), "it cannot be read"},
		{sealed("\x0a", "\xff\xff\xff\xff\x0f\x0a"), "it is no configuration"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, path)
		if got := s.State().Problem; c.says == "" && (got != "" || s.Empty()) || !strings.Contains(got, c.says) || c.says != "" && !s.Empty() {
			t.Errorf("%.60q: %q, want %q; %+v", c.text, got, c.says, s.State())
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := open(t, path).State().Problem; !strings.Contains(got, "can be written by other users") {
		t.Error(got)
	}
	if got := open(t, dir).State().Problem; !strings.Contains(got, "is not a regular file") {
		t.Error(got)
	}
	if err := os.Truncate(path, maxSize+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := open(t, path).State().Problem; !strings.Contains(got, "and the most is") {
		t.Error(got)
	}
}

// TestCannotWrite: a file that cannot be written is reported, and its content stays. When it can be written again, the report is withdrawn.
func TestCannotWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	path := filepath.Join(dir, "f")
	s := open(t, path)
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
	s.write()
	if got := s.State(); got.Problem == "" || !got.Saved.IsZero() {
		t.Errorf("without a folder: %+v", got)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write()
	if got := s.State(); got.Problem != "" || got.Saved.IsZero() {
		t.Errorf("with a folder: %+v", got)
	}
	h, list := s.content(time.Now())
	err := write(path, h, 100, list)
	if err == nil || !strings.Contains(err.Error(), "larger than the largest file") || text(open(t, path), clusters) != "a@1" {
		t.Errorf("too large: %v; then there is %s", err, text(open(t, path), clusters))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("there is more than the file: %v, %v", left, err)
	}
}

// TestDiskFull writes to a file system without space.
func TestDiskFull(t *testing.T) {
	dir := disktest.Small(t)
	path := filepath.Join(dir, "f")
	s := open(t, path)
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
	s.write()
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "b", strings.Repeat("x", 100<<10))}, nil)
	s.write()
	if got := s.State().Problem; !strings.Contains(got, "no space left on device") || text(open(t, path), clusters) != "a@1" {
		t.Errorf("%q; then there is %s", got, text(open(t, path), clusters))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("there is more than the file: %v, %v", left, err)
	}
}

// FuzzParse reads anything as a file. Readable content is written and read again.
func FuzzParse(f *testing.F) {
	path := filepath.Join(f.TempDir(), "f")
	s := open(f, path)
	s.Accept(clusters, []*discoveryv3.Resource{resource(f, "a", "1")}, nil)
	s.write()
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:len(good)-sha256.Size])
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		h, list, err := parse(append(body, sum[:]...), node)
		if err != nil {
			return
		}
		var out strings.Builder
		if err := fill(&out, *h, maxSize, list); err != nil {
			t.Fatal(err)
		}
		_, again, err := parse([]byte(out.String()), node)
		if err != nil || !slices.EqualFunc(list, again, func(a, b *discoveryv3.DeltaDiscoveryResponse) bool { return proto.Equal(a, b) }) {
			t.Fatalf("%v: %v, want %v", err, again, list)
		}
	})
}
