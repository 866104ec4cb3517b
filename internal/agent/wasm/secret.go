package wasm

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// maxSecret is the size of the largest pull secret, as in Kubernetes.
const maxSecret = 1 << 20

// pullSecret holds the credentials of registries.
type pullSecret map[string]authn.AuthConfig

// parseSecret reads a pull secret: the content of a Secret of the type kubernetes.io/dockerconfigjson, or the older format, which has only
// the content of auths. The error contains nothing of the secret.
func parseSecret(text []byte) (pullSecret, error) {
	wrong := permanent{errors.New("its pull secret is not one of the type kubernetes.io/dockerconfigjson; correct the Secret that imagePullSecret names")}
	if len(text) > maxSecret {
		return nil, wrong
	}
	var file struct {
		Auths pullSecret `json:"auths"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, wrong
	}
	if file.Auths == nil {
		if err := json.Unmarshal(text, &file.Auths); err != nil {
			return nil, wrong
		}
	}
	return file.Auths, nil
}

// Resolve implements authn.Keychain. The entry with the longest path that leads to an image counts, as in Kubernetes.
func (s pullSecret) Resolve(image authn.Resource) (authn.Authenticator, error) {
	best, found := authn.AuthConfig{}, -1
	for server, a := range s {
		if at := registryOf(server); covers(at, image) && len(at) > found {
			best, found = a, len(at)
		}
	}
	if found < 0 {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(best), nil
}

// dockerHub is the name of the registry of Docker Hub. Pull secrets have others, too.
const dockerHub = "index.docker.io"

// registryOf returns the registry of an entry, and the path in it.
func registryOf(server string) string {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	host, path, _ := strings.Cut(strings.TrimRight(server, "/"), "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = dockerHub
	}
	if path == "" || path == "v1" || path == "v2" {
		return host
	}
	return host + "/" + path
}

func covers(place string, image authn.Resource) bool {
	return place == image.RegistryStr() || place == image.String() || strings.HasPrefix(image.String(), place+"/")
}
