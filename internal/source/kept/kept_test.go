package kept

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/statefile"
)

func seal(t testing.TB, o api.Object) *api.Object {
	t.Helper()
	out, err := o.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func policy(t testing.TB, namespace, name, path string) *api.Object {
	t.Helper()
	return seal(t, api.Object{
		Key: api.Key{Namespace: namespace, Name: name}, Position: api.Position{File: "p.yaml", Generation: 3},
		Spec: &security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY, Rules: []*security.Rule{{
			To: []*security.Rule_To{{Operation: &security.Operation{Paths: []string{path}}}},
		}}},
	})
}

// TestVersionsComeBack: decoding restores the encoded versions, in everything that proxies depend on, and the same versions make the same bytes.
func TestVersionsComeBack(t *testing.T) {
	all := []*api.Object{
		policy(t, "bank", "a", "/\u00e4\"\n"),
		seal(t, api.Object{
			Key: api.Key{Namespace: "bank", Name: "b"}, Created: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC), Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{api.DryRun: "true"}, Spec: &security.AuthorizationPolicy{},
		}),
		seal(t, api.Object{Key: api.Key{Namespace: "bank", Name: "c"}, Spec: &security.PeerAuthentication{
			Selector:      &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "a"}},
			PortLevelMtls: map[uint32]*security.PeerAuthentication_MutualTLS{80: {Mode: security.PeerAuthentication_MutualTLS_DISABLE}},
		}}),
		seal(t, api.Object{Key: api.Key{Namespace: "bank", Name: "d"}, Spec: &security.RequestAuthentication{JwtRules: []*security.JWTRule{{
			Issuer: "i", JwksUri: "https://i.example.com/keys", Timeout: durationpb.New(1500 * time.Millisecond), Presence: security.JWTRule_REQUIRED,
		}}}}),
	}
	data, left, err := Encode(all)
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	for range 5 {
		if again, _, _ := Encode(all); !slices.Equal(again, data) {
			t.Fatal("other bytes")
		}
	}
	got, err := Decode(data)
	if err != nil || len(got) != len(all) {
		t.Fatal(got, err)
	}
	for i, o := range got {
		if o.Key != all[i].Key || o.Hash != all[i].Hash || o.Position != all[i].Position {
			t.Errorf("%v at %v came back as %v at %v", all[i], all[i].Position, o, o.Position)
		}
	}
}

// TestDamage: damaged bytes yield nothing or a part, and an error, but never an object that a user could not have written.
func TestDamage(t *testing.T) {
	data, _, err := Encode([]*api.Object{policy(t, "bank", "a", "/a"), policy(t, "bank", "b", "/b")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		damaged := slices.Clone(data)
		damaged[i] ^= 0x10
		if got, err := Decode(damaged); err == nil {
			for _, o := range got {
				if !slices.Contains([]string{"a", "b"}, o.Name) || o.Spec.(*security.AuthorizationPolicy).Rules[0].To[0].Operation.Paths[0] != "/"+o.Name {
					t.Errorf("byte %d: %v", i, o)
				}
			}
		}
		if _, err := Decode(data[:i]); err == nil {
			t.Errorf("the first %d bytes are taken for all", i)
		}
	}
	for _, text := range []string{
		"{}", "5", `{"object": {"kind": "Sidecar", "apiVersion": "networking.istio.io/v1", "metadata": {"name": "a"}}}`,
		`{"object": {"kind": "AuthorizationPolicy", "apiVersion": "security.istio.io/v1", "metadata": {"name": "a"}, "spec": {"action": "DENY"}}}`,
		`{"object": {"kind": "List", "items": []}}`,
	} {
		packed, err := pack([]line{{text: []byte(text)}, {text: mustEncode(t, policy(t, "bank", "a", "/a"))}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(packed); err == nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func mustEncode(t testing.TB, o *api.Object) []byte {
	t.Helper()
	text, err := encode(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRoom: a namespace that has more than there is room for costs another one nothing, although both are in one part.
func TestRoom(t *testing.T) {
	var lines []line
	add := func(namespace, name string, size int) {
		lines = append(lines, line{api.Key{Kind: api.KindAuthorizationPolicy, Namespace: namespace, Name: name}, []byte(strings.Repeat("x", size))})
	}
	for i := range 50 {
		add("greedy", fmt.Sprint("p", i), 100+i)
	}
	add("modest", "large", 900)
	add("modest", "small", 10)
	rest, left := fit(lines, 3000)
	if size(rest) > 3000 || size(rest) < 2800 || len(rest)+len(left) != len(lines) {
		t.Errorf("%d bytes are left of %d", size(rest), size(lines))
	}
	for _, k := range left {
		if k.Namespace != "greedy" {
			t.Errorf("%v has no room", k)
		}
	}
	// Alone, it keeps as much as fits.
	if rest, left = fit(lines[:50], 3000); len(left) == 0 || size(rest) < 2800 {
		t.Errorf("%d bytes are left", size(rest))
	}
}

// TestPartsFit: a part is never larger than a ConfigMap can be.
func TestPartsFit(t *testing.T) {
	var all []*api.Object
	for i := range 40 {
		// Texts that do not compress well: hashes.
		var text strings.Builder
		for j := range 1500 {
			fmt.Fprintf(&text, "%x", seal(t, api.Object{Key: api.Key{Name: fmt.Sprintf("x%d-%d", i, j)}, Spec: &security.PeerAuthentication{}}).Hash)
		}
		all = append(all, policy(t, "bank", fmt.Sprint("p", i), "/"+text.String()))
	}
	data, left, err := Encode(all)
	if err != nil || len(data) > mostPacked || len(left) == 0 || len(left) > 30 {
		t.Errorf("%d bytes, %d left, %v", len(data), len(left), err)
	}
	if got, err := Decode(data); err != nil || len(got)+len(left) != len(all) {
		t.Errorf("%d came back, %v", len(got), err)
	}
}

// TestBook: a book says which parts have changed, and says nothing before it is complete.
func TestBook(t *testing.T) {
	b := &Book{}
	o := policy(t, "bank", "a", "/a")
	b.Put(o)
	if len(b.Changed()) > 0 {
		t.Error("it is not complete")
	}
	b.Complete()
	i := partOf("bank")
	if got := b.Changed(); !slices.Equal(got, []int{i}) || len(b.Take(i)) != 1 || len(b.Changed()) > 0 {
		t.Errorf("changed: %v", got)
	}
	again := *o
	again.Position.Line = 7
	if b.Put(&again); len(b.Changed()) > 0 {
		t.Error("the same version in another line is a change")
	}
	if b.Drop(api.Key{Kind: "X", Namespace: "bank", Name: "a"}); len(b.Changed()) > 0 {
		t.Error("nothing was dropped")
	}
	if b.Drop(o.Key); len(b.Changed()) != 1 || len(b.Take(i)) != 0 {
		t.Error("it was dropped")
	}
	if b.Retry(i); len(b.Changed()) != 1 {
		t.Error("it could not be written")
	}
}

// TestFolder: the versions of two sources in one state folder do not mix, and a part that cannot be read costs only itself.
func TestFolder(t *testing.T) {
	dir := statefile.Dir(t.TempDir())
	mine, theirs := Folder{Dir: dir, Of: "/mine"}, Folder{Dir: dir, Of: "/theirs"}
	save := func(f Folder, part int, o *api.Object) {
		data, _, err := Encode([]*api.Object{o})
		if err == nil {
			err = f.Save(part, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	save(mine, 0, policy(t, "bank", "a", "/a"))
	save(mine, 1, policy(t, "shop", "b", "/b"))
	save(theirs, 0, policy(t, "bank", "c", "/c"))
	if got, err := mine.Load(); err != nil || len(got) != 2 || got[0].Name != "a" {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(dir.Path(mine.name(0)), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := mine.Load(); err == nil || len(got) != 1 || got[0].Name != "b" {
		t.Errorf("%v, %v", got, err)
	}
}
