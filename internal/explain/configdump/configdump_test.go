package configdump

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// dump is the dump of a file of testdata/dumps.txtar.
func dump(t *testing.T, name string) *Dump {
	t.Helper()
	d, err := Read(file(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", "dumps.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	t.Fatalf("no file %s", name)
	return nil
}

// TestTables: the tables of a dump of Envoy, whole and filtered.
func TestTables(t *testing.T) {
	d := dump(t, "envoy.json")
	for _, c := range []struct {
		kind   Kind
		filter Filter
		want   string
	}{
		{Clusters, Filter{}, "clusters"},
		{Clusters, Filter{Host: "reviews.shop", Subset: "v1"}, "clusters-v1"},
		{Clusters, Filter{Direction: "inbound"}, "clusters-inbound"},
		{Listeners, Filter{}, "listeners"},
		{Listeners, Filter{Port: "80", Address: "10.0.0.9"}, "listeners-80"},
		{Routes, Filter{}, "routes"},
		{Routes, Filter{Name: "none"}, "routes-none"},
		{Endpoints, Filter{}, "endpoints"},
		{Endpoints, Filter{Status: "unhealthy"}, "endpoints-unhealthy"},
	} {
		var b bytes.Buffer
		if err := WriteTable(&b, c.kind, d.Only(c.kind, c.filter), c.filter); err != nil {
			t.Fatal(err)
		}
		if want := string(file(t, c.want)); squeeze(b.String()) != squeeze(want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.want, b.String(), want)
		}
	}
}

// TestDiff: each kind of difference is found, and content that only Envoy writes otherwise is none.
func TestDiff(t *testing.T) {
	wanted, has := dump(t, "wanted.json"), dump(t, "envoy.json")
	var all []Difference
	for _, k := range Kinds() {
		all = append(all, Diff(k, wanted.Entries[k], has.Entries[k])...)
		if same := Diff(k, wanted.Entries[k], wanted.Entries[k]); len(same) > 0 {
			t.Errorf("%s differ from themselves: %+v", k, same)
		}
	}
	var b bytes.Buffer
	if err := WriteDiff(&b, all); err != nil {
		t.Fatal(err)
	}
	if want := string(file(t, "diff")); b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestDiffValues: a change of any value of a resource is a difference, wherever it is.
func TestDiffValues(t *testing.T) {
	const base = `{"name":"x","list":[{"name":"a","v":1},{"name":"b"}],"plain":[1,"two",{"z":true}],"deep":{"deeper":{"deepest":"s"}},"flag":false}`
	for _, c := range []struct{ name, old, new, path string }{
		{"a string", `"s"`, `"t"`, "deep.deeper.deepest"},
		{"a number", `"v":1`, `"v":2`, "list[a].v"},
		{"a flag", `"flag":false`, `"flag":true`, "flag"},
		{"a missing field", `,"flag":false`, ``, "flag"},
		{"a missing element", `,{"name":"b"}`, ``, "list[b]"},
		{"another order", `[{"name":"a","v":1},{"name":"b"}]`, `[{"name":"b"},{"name":"a","v":1}]`, "list (order)"},
		{"an element without a name", `"two"`, `"three"`, "plain[1]"},
		{"another type", `{"deepest":"s"}`, `[]`, "deep.deeper"},
		{"null", `"s"`, `null`, "deep.deeper.deepest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(base, c.old, c.new, 1)
			if changed == base {
				t.Fatal("nothing was changed")
			}
			for _, pair := range [][2]string{{base, changed}, {changed, base}} {
				d := Diff(Clusters, []Entry{entry(t, pair[0])}, []Entry{entry(t, pair[1])})
				if len(d) != 1 || d[0].Result != "differs" || len(d[0].Fields) != 1 || d[0].Fields[0].Path != c.path {
					t.Errorf("%+v, want a difference at %s", d, c.path)
				}
			}
		})
	}
}

func entry(t *testing.T, body string) Entry {
	t.Helper()
	e := Entry{Name: "x", State: active}
	if err := json.Unmarshal([]byte(body), &e.Body); err != nil {
		t.Fatal(err)
	}
	return e
}

// leak is the content of all keys. It must be in no output.
const leak = "do-not-show-this"

// leaky returns a dump with keys at all places where one could be, and the base64 of a key in it.
func leaky(t *testing.T, now time.Time) (page, hidden string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(255), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	chain := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte(leak)})
	text, err := json.Marshal(string(private))
	if err != nil {
		t.Fatal(err)
	}
	hidden = base64.StdEncoding.EncodeToString(private)
	page = fmt.Sprintf(`{"configs":[
		{"@type":"type.googleapis.com/envoy.admin.v3.SecretsConfigDump","dynamic_active_secrets":[
			{"name":"default","secret":{"tls_certificate":{"certificate_chain":{"inline_bytes":%q},"private_key":{"inline_bytes":%q}}}},
			{"name":"ROOTCA","secret":{"validation_context":{"trusted_ca":{"inline_bytes":%q}}}},
			{"name":"file","secret":{"tls_certificate":{"certificate_chain":{"filename":"/etc/certs/chain.pem"}}}},
			{"name":"token","secret":{"generic_secret":{"secret":{"inline_string":%q}}}}],
		 "dynamic_warming_secrets":[{"name":"missing"}]},
		{"@type":"type.googleapis.com/envoy.admin.v3.BootstrapConfigDump","bootstrap":{"node":{"id":"n"},
			"private_key":%q,"value":%s,"data":%q,"headers":[{"key":"authorization","value":%q}],"auth":{"password":{"inline_string":%q}},"Authorization":%q}},
		{"@type":"type.googleapis.com/envoy.admin.v3.ClustersConfigDump","dynamic_active_clusters":[{"cluster":{"name":"c","tls":{"private_key":{"inline_string":%s}}}}]}
	]}`, chain, hidden, chain, leak, leak, text, hidden, leak, leak, leak, text)
	return page, hidden
}

// TestSecrets: certificates are described, and keys are nowhere.
func TestSecrets(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	page, hidden := leaky(t, now)
	d, err := Read([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteSecrets(&b, d.Secrets, now); err != nil {
		t.Fatal(err)
	}
	const want = `RESOURCE NAME   TYPE          STATUS    VALID CERT   SERIAL NUMBER                    NOT AFTER              NOT BEFORE
ROOTCA          roots         ACTIVE    true         ff                               2030-01-01T01:00:00Z   2029-12-31T23:00:00Z
default         certificate   ACTIVE    true         ff                               2030-01-01T01:00:00Z   2029-12-31T23:00:00Z
file            certificate   ACTIVE    -            in the file /etc/certs/chain.pem   -   -
missing         other         WARMING   -            Envoy waits for it   -   -
token           other         ACTIVE    -            -   -   -
`
	if squeeze(b.String()) != squeeze(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	all, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"the table": b.String(), "the dump": string(all)} {
		if strings.Contains(text, leak) || strings.Contains(text, hidden) || strings.Contains(text, "PRIVATE") {
			t.Errorf("%s shows a key:\n%s", name, text)
		}
	}
	if d.Bootstrap["node"] == nil {
		t.Error("the bootstrap lost its node")
	}
	b.Reset()
	if err := WriteSecrets(&b, d.Secrets, now.Add(time.Hour)); err != nil || strings.Contains(b.String(), "true") {
		t.Errorf("an expired certificate is valid (%v):\n%s", err, b.String())
	}
}

// squeeze makes each run of blanks one blank.
func squeeze(s string) string {
	var all []string
	for _, line := range strings.Split(s, "\n") {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(all, "\n")
}

// TestReadErrors: other content is an error that says how to get a dump.
func TestReadErrors(t *testing.T) {
	for _, text := range []string{"", "{}", "<html>", `{"configs": 5}`, "[]"} {
		if d, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), "/config_dump?include_eds") {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
}

// FuzzRead: no content breaks the program, and a dump has no difference to itself.
func FuzzRead(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "dumps.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, one := range txtar.Parse(data).Files {
		f.Add(one.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Read(data)
		if err != nil {
			return
		}
		for _, k := range Kinds() {
			if err := WriteTable(&bytes.Buffer{}, k, d.Only(k, Filter{}), Filter{}); err != nil {
				t.Fatal(err)
			}
			for _, one := range d.Entries[k] {
				if fields := fields(k, one, one); len(fields) > 0 {
					t.Fatalf("%s %q differs from itself: %+v", k, one.Name, fields)
				}
			}
		}
	})
}
