package machines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/vm"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// origin is where the facts come from.
type origin interface {
	Group(ctx context.Context, namespace, name string) ([]byte, error)
	MeshConfig(ctx context.Context, namespace, revision string) ([]byte, error)
	MachineRoots(ctx context.Context, namespace string) ([]byte, error)
	Token(ctx context.Context, namespace, account, audience string, valid time.Duration) ([]byte, error)
	Addresses(ctx context.Context, namespace, service string) ([]string, error)
}

// facts collects the data that the files are made from.
func (e *entryFlags) facts(ctx context.Context, from origin) (vm.Facts, error) {
	f := vm.Facts{
		ControlNamespace: e.istioNamespace, Revision: e.revision, Discovery: e.discovery, Ingress: e.ingressIP, ClusterID: e.clusterID,
		Register: e.register, DNS: e.dns, InternalIP: e.internalIP, ExternalIP: e.externalIP,
	}
	where, text, err := e.file, []byte(nil), error(nil)
	if e.file != "" {
		text, err = os.ReadFile(e.file)
	} else {
		where = "the cluster"
		text, err = from.Group(ctx, e.namespace, e.name)
	}
	if err != nil {
		return f, err
	}
	group, err := vm.ReadGroup(where, text, e.namespace, e.name)
	if err != nil {
		return f, err
	}
	f.SetGroup(group)
	if err := e.readMesh(ctx, from, &f); err != nil {
		return f, err
	}
	if f.Roots, err = from.MachineRoots(ctx, f.Namespace); err != nil {
		return f, err
	}
	if len(f.Ingress) == 0 {
		if f.Ingress, err = from.Addresses(ctx, e.istioNamespace, e.ingressService); err != nil {
			return f, err
		}
	}
	f.Token, err = from.Token(ctx, f.Namespace, vm.Account(f.Spec), identity.Audience, time.Duration(e.seconds)*time.Second)
	return f, err
}

// readMesh reads the mesh configuration.
func (e *entryFlags) readMesh(ctx context.Context, from origin, f *vm.Facts) error {
	where, text, err := e.meshConfigs, []byte(nil), error(nil)
	if where != "" {
		text, err = os.ReadFile(where)
	} else {
		where = "the mesh configuration of the cluster"
		text, err = from.MeshConfig(ctx, e.istioNamespace, e.revision)
	}
	if err != nil {
		return err
	}
	m, problems := api.DecodeMesh(where, text)
	if m == nil {
		return fmt.Errorf("%s cannot be read: %v", where, problems)
	}
	f.Mesh = m
	return nil
}

// folder is the state folder of a control plane outside Kubernetes.
type folder struct{ dir statefile.Dir }

// Group implements origin. A WorkloadGroup comes from a file then.
func (folder) Group(context.Context, string, string) ([]byte, error) {
	return nil, errors.New("name the file with the WorkloadGroup (-f)")
}

// MeshConfig implements origin.
func (folder) MeshConfig(context.Context, string, string) ([]byte, error) { return nil, nil }

// Addresses implements origin.
func (folder) Addresses(context.Context, string, string) ([]string, error) { return nil, nil }

// MachineRoots implements origin.
func (s folder) MachineRoots(context.Context, string) ([]byte, error) {
	text, err := os.ReadFile(s.dir.Path("root-cert.pem"))
	if err != nil {
		return nil, fmt.Errorf("the roots of the control plane: %w; start the control plane once, with the same --stateDir", err)
	}
	return text, nil
}

// Token implements origin.
func (s folder) Token(_ context.Context, namespace, account, audience string, valid time.Duration) ([]byte, error) {
	key, err := identity.OpenLocalKey(s.dir)
	if err != nil {
		return nil, err
	}
	token, err := key.Issue(namespace, account, []string{audience}, time.Now(), valid)
	return []byte(token), err
}
