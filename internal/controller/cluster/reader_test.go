package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// tokenServer is an API server with one service account. It fills a Secret when it is read for the second time.
type tokenServer struct {
	secret        *core.Secret
	reads         int
	forbidden     string // the refused request, as METHOD RESOURCE
	never, absent bool
}

// RoundTrip implements http.RoundTripper.
func (s *tokenServer) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/istio-system/")
	what, _, _ := strings.Cut(path, "/")
	if strings.HasSuffix(path, "/token") {
		what = "token"
	}
	switch asked := r.Method + " " + what; {
	case asked == s.forbidden:
		return refusal(http.StatusForbidden, metav1.StatusReasonForbidden), nil
	case asked == "GET serviceaccounts" && s.absent:
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	case asked == "GET serviceaccounts":
		return body(http.StatusOK, &core.ServiceAccount{}), nil
	case asked == "POST token":
		in := &authentication.TokenRequest{}
		if err := json.NewDecoder(r.Body).Decode(in); err != nil {
			return nil, err
		}
		in.Status.Token = fmt.Sprintf("for %d seconds", *in.Spec.ExpirationSeconds)
		return body(http.StatusCreated, in), nil
	case asked == "POST secrets":
		s.secret = &core.Secret{}
		if err := json.NewDecoder(r.Body).Decode(s.secret); err != nil {
			return nil, err
		}
		return body(http.StatusCreated, s.secret), nil
	case s.secret == nil:
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}
	if s.reads++; s.reads > 1 && !s.never {
		s.secret.Data = map[string][]byte{"token": []byte("for ever"), "ca.crt": []byte("roots")}
	}
	return body(http.StatusOK, s.secret), nil
}

func (s *tokenServer) token(valid time.Duration) (token, roots string, err error) {
	m, err := NewMachines(&rest.Config{Host: "http://cluster.test", Transport: s, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t, r, err := m.ReaderToken(ctx, "istio-system", "reader", valid)
	return string(t), string(r), err
}

// TestReaderToken: a token comes from a Secret that the cluster fills, or is issued for a time.
func TestReaderToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenServer{}
		if token, roots, err := s.token(0); token != "for ever" || roots != "roots" || err != nil {
			t.Errorf("%q, %q, %v", token, roots, err)
		}
		if s.secret.Name != "reader-istio-remote-secret-token" || s.secret.Annotations[core.ServiceAccountNameKey] != "reader" || s.secret.Type != core.SecretTypeServiceAccountToken {
			t.Errorf("the Secret is %+v", s.secret)
		}
		if token, _, err := s.token(time.Hour); token != "for 3600 seconds" || err != nil {
			t.Errorf("%q, %v", token, err)
		}
	})
}

// TestReaderTokenErrors: an error names the missing object or permission, and the remedy.
func TestReaderTokenErrors(t *testing.T) {
	other := &core.Secret{Type: core.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{core.ServiceAccountNameKey: "other"}}}
	for want, c := range map[string]struct {
		server tokenServer
		valid  time.Duration
	}{
		"--print-account | kubectl apply":                      {server: tokenServer{absent: true}},
		"needs the permission to get serviceaccounts":          {server: tokenServer{forbidden: "GET serviceaccounts"}},
		"needs the permission to create serviceaccounts/token": {server: tokenServer{forbidden: "POST token"}, valid: time.Hour},
		"needs the permission to get and create secrets":       {server: tokenServer{forbidden: "POST secrets"}},
		"is not of the service account reader":                 {server: tokenServer{secret: other}},
		"does its controller manager issue tokens":             {server: tokenServer{never: true}},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if token, _, err := c.server.token(c.valid); err == nil || !strings.Contains(err.Error(), want) || token != "" {
					t.Errorf("%q, %v", token, err)
				}
			})
		})
	}
}

// TestReaderAccount: the objects are YAML with the names that were asked for.
func TestReaderAccount(t *testing.T) {
	for _, doc := range strings.Split(fmt.Sprintf(ReaderAccount, "mesh", "reader"), "---\n") {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil || !strings.HasPrefix(o.Name, "reader") || o.Kind == "" {
			t.Errorf("%+v, %v in\n%s", o, err, doc)
		}
	}
}
