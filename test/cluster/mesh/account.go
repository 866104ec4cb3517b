package mesh

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
)

// ControlNamespace is the namespace of the control plane.
const ControlNamespace = "istio-system"

// account is the name of the control plane's ServiceAccount.
const account = "pilot-discovery"

// Permissions returns manifests/rbac.yaml for a control plane in a namespace.
func Permissions(namespace string) (string, error) {
	root, err := binaries.Root()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "manifests", "rbac.yaml"))
	if err != nil {
		return "", fmt.Errorf("reading the permissions of the control plane: %w", err)
	}
	return strings.ReplaceAll(string(text), ControlNamespace, namespace), nil
}

// As returns the credentials of the account that Permissions describes: a token of the API server.
func As(ctx context.Context, c *cluster.Cluster, namespace string) (*rest.Config, error) {
	token, err := c.Client().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authentication.TokenRequest{}, meta.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("a token for the control plane: %w", err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	return config, nil
}

// Definitions returns the path of the definitions of Istio's kinds.
func Definitions(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the definitions of Istio's kinds: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "kubernetes", "customresourcedefinitions.gen.yaml"), nil
}
