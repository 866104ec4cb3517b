package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"
)

// secrets are texts that must be in no archive.
const (
	secret  = "c2VjcmV0LWtleS1tYXRlcmlhbA"
	pem     = "-----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY-----\n"
	payload = "eyJzdWIiOiJ1c2VyIiwi" + secret
	jwt     = "eyJhbGciOiJFUzI1NiJ9." + payload + ".c2lnbmF0dXJl" + secret
)

// read returns the files of an archive.
func read(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "pilot-bug-report/")] = string(body)
	}
}

// leaky is a control plane whose pages have secrets at all places where one could be.
func leaky(t *testing.T) func(context.Context, string, url.Values) ([]byte, error) {
	quoted := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return func(_ context.Context, page string, query url.Values) ([]byte, error) {
		switch page {
		case "/debug/syncz":
			return []byte(`[{"proxy": "good-1.shop", "resources": {"CDS": {"state": "SYNCED"}}}, {"proxy": "bad-1.shop", "resources": {"RDS": {"state": "REJECTED"}}}]`), nil
		case "/debug/configz":
			return []byte(`[{"kind": "EnvoyFilter", "spec": {"value": {"password": ` + quoted(secret) + `, "text": ` + quoted("key: "+pem) + `, "raw": ` + quoted(base64.StdEncoding.EncodeToString([]byte(pem))) +
				`, "offset": ` + quoted(base64.StdEncoding.EncodeToString([]byte("x"+pem))) + `, "offset2": ` + quoted(base64.StdEncoding.EncodeToString([]byte("xy"+pem))) +
				`, "headers": [{"name": "authorization", "value": ` + quoted("Bearer "+jwt) + `}], "jwt": ` + quoted(jwt) + `, "url": "https://user:` + secret + `@host/", "keep": "this value"}}}]`), nil
		case "/metrics":
			return []byte("# text\n" + pem + "authorization: Bearer " + secret + secret + "\nmetric 1\n"), nil
		case "/debug/mesh":
			return nil, errors.New("refused, with the token " + jwt)
		case "/debug/config_dump":
			return []byte(`{"proxy": ` + quoted(query.Get("proxyID")) + `, "configs": [{"private_key": {"inline_string": ` + quoted(secret) + `}}]}`), nil
		}
		return []byte(`{}`), nil
	}
}

func options(t *testing.T, said *[]string) Options {
	return Options{
		Get: leaky(t), Proxies: 1, MaxBytes: 1 << 20, Now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		Say: func(format string, _ ...any) { *said = append(*said, format) },
		Files: []File{
			{"logs/istiod.log", func(context.Context) ([]byte, error) {
				return []byte("level=info msg=\"hello\"\n" + strings.ReplaceAll(pem, "\n", `\n`) + "\npassword=" + secret + "\ntoken " + jwt + "\nlast line\n"), nil
			}},
			{"logs/gone.log", func(context.Context) ([]byte, error) { return nil, errors.New("no such pod") }},
		},
	}
}

// TestNoSecrets: whatever pages and logs have, no key, password or token is in the archive, and the rest is.
func TestNoSecrets(t *testing.T) {
	var out bytes.Buffer
	var said []string
	left, err := Write(t.Context(), &out, options(t, &said))
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, out.Bytes())
	encoded := base64.StdEncoding.EncodeToString([]byte(pem))
	for name, body := range files {
		for _, s := range []string{secret, payload, "PRIVATE KEY", encoded[:40]} {
			if strings.Contains(body, s) {
				t.Errorf("%s has %q:\n%s", name, s, body)
			}
		}
	}
	for name, want := range map[string]string{
		"debug/configz.json": `"keep": "this value"`, "logs/istiod.log": "last line", "metrics.txt": "metric 1", "proxies/bad-1.shop/config_dump.json": `"proxy": "bad-1.shop"`,
		"CONTENT.txt": "logs/gone.log: no such pod",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}
	list := strings.Join(left, "\n")
	for _, want := range []string{"Secrets, private keys", "debug/mesh.json: refused", "1 more proxies: --proxies is 1", "logs/gone.log"} {
		if !strings.Contains(list, want) || !strings.Contains(files["CONTENT.txt"], want) {
			t.Errorf("%q is not said to be left out:\n%s", want, list)
		}
	}
	if strings.Contains(list, secret) || files["proxies/good-1.shop/config_dump.json"] != "" || len(said) == 0 {
		t.Errorf("left out: %s; progress: %d lines", list, len(said))
	}
}

// TestBounds: an archive is bounded in size and in time, and names the missing parts.
func TestBounds(t *testing.T) {
	var said []string
	o := options(t, &said)
	o.MaxBytes = 100
	var out bytes.Buffer
	left, err := Write(t.Context(), &out, o)
	if err != nil || !strings.Contains(strings.Join(left, "\n"), "debug/configz.json: the archive would be larger than --max-size") {
		t.Errorf("%v, %q", err, left)
	}
	total := 0
	for name, body := range read(t, out.Bytes()) {
		if name != "CONTENT.txt" {
			total += len(body)
		}
	}
	if total > o.MaxBytes {
		t.Errorf("%d bytes", total)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out.Reset()
	if left, err = Write(ctx, &out, options(t, &said)); err != nil || !strings.Contains(strings.Join(left, "\n"), "metrics.txt: the time is over") {
		t.Errorf("%v, %q", err, left)
	}
	if files := read(t, out.Bytes()); len(files) != 1 {
		t.Errorf("%d files after the end of the time", len(files))
	}
	if _, err := Write(t.Context(), broken{}, options(t, &said)); err == nil || !strings.Contains(err.Error(), "writing the archive") {
		t.Errorf("a full disk: %v", err)
	}
}

// broken is an output that cannot be written.
type broken struct{}

// Write implements io.Writer.
func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// FuzzClean: content that has a key between any texts has none afterwards.
func FuzzClean(f *testing.F) {
	f.Add("a", "b")
	f.Add(`{"x": "`, `"}`)
	f.Add("-----BEGIN EC PRIVATE KEY-----", "-----END EC PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, before, after string) {
		if got := withoutSecrets([]byte(before + pem + after)); bytes.Contains(got, []byte(secret)) {
			t.Errorf("%q", got)
		}
	})
}
