package sts

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a token service. The subject's token decides about the answer.
func service(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch token := r.PostForm.Get("subject_token"); token {
	case "good":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": "for " + r.PostForm.Get("audience") + " " + r.PostForm.Get("scope") + " " + r.PostForm.Get("ignored"), "token_type": "Bearer", "expires_in": 3600, "more": 1,
			"issued_token_type": accessType,
		})
	case "bad":
		http.Error(w, `{"error":"invalid_grant","error_description":"it has expired"}`, http.StatusUnauthorized)
	case "broken":
		http.Error(w, `{"error":"secret-of-the-service"}`, http.StatusInternalServerError)
	case "large":
		_, _ = w.Write(bytes.Repeat([]byte(" "), 10<<20))
	case "garbage":
		_, _ = w.Write([]byte("<html>secret-token"))
	case "none":
		_, _ = w.Write([]byte(`{"token_type":"Bearer"}`))
	case "untyped":
		_, _ = w.Write([]byte(`{"access_token":"a"}`))
	case "away":
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case "gone":
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	}
}

// agent returns the URL of an agent in front of a token service, and its log.
func agent(t *testing.T) (address string, log *bytes.Buffer) {
	t.Helper()
	upstream := httptest.NewTLSServer(http.HandlerFunc(service))
	roots := x509.NewCertPool()
	roots.AddCert(upstream.Certificate())
	log = &bytes.Buffer{}
	h := Handler(Options{Endpoint: upstream.URL + "/v1/token", TLS: &tls.Config{RootCAs: roots}, Log: slog.New(slog.NewTextHandler(log, nil))})
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		upstream.CloseClientConnections()
		upstream.Close()
	})
	return s.URL + "/token", log
}

// reply is what precedes the body of a response.
type reply struct {
	code   int
	header http.Header
}

// post sends a form and returns status and body.
func post(t *testing.T, address, contentType, body string) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return reply{resp.StatusCode, resp.Header}, strings.TrimSpace(string(text))
}

const form = "application/x-www-form-urlencoded"

func exchange(token string, more ...string) string {
	v := url.Values{"grant_type": {grantType}, "subject_token": {token}, "subject_token_type": {jwtType}, "audience": {"bank"}, "scope": {"read"}, "ignored": {"x"}}
	for i := 0; i < len(more); i += 2 {
		v[more[i]] = strings.Fields(more[i+1])
	}
	return v.Encode()
}

func TestExchange(t *testing.T) {
	address, log := agent(t)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{exchange("good"), 200, `{"access_token":"for bank read ","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`},
		{exchange("bad"), 401, `{"error":"invalid_grant","error_description":"it has expired"}`},
		{exchange("broken"), 502, "the token service answered 500"},
		{exchange("large"), 502, "has more than 262144 bytes"},
		{exchange("garbage"), 502, "is not a JSON object"},
		{exchange("none"), 502, "has no access_token"},
		{exchange("untyped"), 502, "has no token_type"},
		{exchange("away"), 502, "the token service answered 307"},
		{exchange("gone"), 503, `"error":"temporarily_unavailable"`},
		{exchange("good", "grant_type", "password"), 400, `"error":"unsupported_grant_type"`},
		{exchange("good", "subject_token", ""), 400, "subject_token is missing"},
		{exchange("good", "subject_token", "a b"), 400, "the parameter subject_token occurs 2 times"},
		{exchange("good", "subject_token_type", "saml"), 400, "subject_token_type must be"},
		{exchange("good", "actor_token", "a"), 400, "actor_token and actor_token_type must be there both"},
		{exchange("good", "audience", "a b"), 200, "for a read"},
		{"%zz", 400, "the parameters cannot be read"},
		{exchange(strings.Repeat("x", maxRequest)), 400, "the request cannot be read"},
	} {
		resp, body := post(t, address, form, c.body)
		if resp.code != c.status || !strings.Contains(body, c.want) || resp.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%.200s: %d %s; want %d %s", c.body, resp.code, body, c.status, c.want)
		}
	}
	if resp, body := post(t, address, "application/json", "{}"); resp.code != http.StatusBadRequest || !strings.Contains(body, "application/x-www-form-urlencoded") {
		t.Errorf("JSON: %d %s", resp.code, body)
	}
	if resp, err := http.Get(address); err != nil || resp.StatusCode != http.StatusMethodNotAllowed || resp.Body.Close() != nil {
		t.Errorf("GET: %v %v", resp, err)
	}
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "it has expired") {
		t.Errorf("the log says\n%s", log)
	}
}

// TestUntrusted: a service with an untrusted certificate gets no token.
func TestUntrusted(t *testing.T) {
	asked := false
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer upstream.Close()
	upstream.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s := httptest.NewServer(Handler(Options{Endpoint: upstream.URL, Log: slog.New(slog.DiscardHandler)}))
	defer s.Close()
	resp, body := post(t, s.URL+"/token", form, exchange("good"))
	if resp.code != http.StatusServiceUnavailable || !strings.Contains(body, "certificate") || asked {
		t.Errorf("%d %s, asked: %v", resp.code, body, asked)
	}
}

// TestTooMany: requests beyond the limit are refused.
func TestTooMany(t *testing.T) {
	h := &handler{running: make(chan struct{})}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/token", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), unavailable) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCheckEndpoint(t *testing.T) {
	for endpoint, good := range map[string]bool{
		"https://sts.example.com/token": true, "http://localhost:1/token": true, "http://127.0.0.1/": true, "http://[::1]:2/": true,
		"http://sts.example.com/": false, "ftp://localhost/": false, "": false, "/token": false, "://": false, "http://localhost.example.com/": false,
	} {
		if err := CheckEndpoint(endpoint); (err == nil) != good {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// FuzzAnswer: every answer of a service yields either a token that can be encoded, or an error.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"a","token_type":"Bearer","expires_in":1}`))
	f.Add(400, []byte(`{"error":"invalid_grant"}`))
	f.Add(302, []byte(`{`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a, err := parseAnswer(status, body)
		if (a == nil) == (err == nil) {
			t.Errorf("%v, %v", a, err)
		}
		if a != nil {
			if _, err := json.Marshal(a); err != nil || a.AccessToken == "" {
				t.Errorf("%+v: %v", a, err)
			}
		}
	})
}

// FuzzRequest: an accepted request has one subject token, and only parameters that are passed on.
func FuzzRequest(f *testing.F) {
	f.Add(exchange("good"))
	f.Add("grant_type=a&subject_token=b&subject_token=c")
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/token", strings.NewReader(body))
		r.Header.Set("Content-Type", form)
		got, err := request(r)
		if err == nil && (len(got["subject_token"]) != 1 || got.Get("grant_type") != grantType || got.Has("ignored")) {
			t.Errorf("%q: %v", body, got)
		}
	})
}
