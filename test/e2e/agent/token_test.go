package agent

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestTokenExchange: a program of the workload gets a token of a service that it does not know, from the agent.
func TestTokenExchange(t *testing.T) {
	b := newBed(t)
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("subject_token") != "mine" {
			http.Error(w, `{"error":"invalid_grant","error_description":"unknown"}`, http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"access_token":"for %s","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":60}`, r.FormValue("audience"))
	}))
	defer service.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	o := options(fmt.Sprintf("--stsPort=%d", ports[0]))
	o.Env = []string{"STS_TOKEN_ENDPOINT=" + service.URL, "STS_ROOT_CA=" + roots}
	b.agent(o, testbed.Node{})
	for token, want := range map[string]string{
		"mine":  `200 {"access_token":"for bank","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":60}`,
		"other": `400 {"error":"invalid_grant","error_description":"unknown"}`,
	} {
		form := url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {token},
			"subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "audience": {"bank"},
		}.Encode()
		b.await("the exchange of a token", func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+testbed.Loopback(ports[0])+"/token", strings.NewReader(form))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := b.client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if got := fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(text))); err == nil && got != want {
				t.Errorf("%s: %s, want %s", token, got, want)
			}
			return err
		})
	}
}
