package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1alpha1"

	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	usage "github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

const startingAgents, stayingAgents = 1000, 500

// secured builds pilot-discovery and prepares one that serves over TLS only. It keeps its files below dir.
func (b *bench) secured(dir string) (*testbed.Discovery, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	binary, err := testbed.Build(b.ctx, root, "pilot-discovery", dir)
	if err != nil {
		return nil, err
	}
	d, err := testbed.NewDiscovery(binary, dir)
	if err == nil {
		d.TLSOnly()
	}
	return d, err
}

// certificates measures the cost of certificates of many agents for pilot-discovery, as a process of its own: agents that start all at once,
// each with a TCP connection, a token and a key of its own; then nothing, while all of them have certificates; then nothing, while some have an
// xDS stream, too.
func certificates(b *bench) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := b.secured(dir)
	if err != nil {
		return err
	}
	if err := d.Start(b.ctx); err != nil {
		return err
	}
	defer d.Stop()
	for i := range b.reps(3) {
		if err := b.certify(d, i); err != nil {
			return err
		}
	}
	return nil
}

// certify starts agents of new service accounts, and then measures the ones that stay connected.
func (b *bench) certify(d *testbed.Discovery, round int) error {
	agents, err := newcomers(d, round)
	if err != nil {
		return err
	}
	defer func() {
		for _, a := range agents {
			_ = a.conn.Close()
		}
	}()
	if err := b.calm(); err != nil {
		return err
	}
	cpu := func() time.Duration {
		used, failed := usage.CPUTime(d.PID())
		err = errors.Join(err, failed)
		return used
	}
	begin, used := time.Now(), cpu()
	err = errors.Join(err, together(agents, func(a *newcomer) error { return a.certify(b.ctx) }))
	if err != nil {
		return err
	}
	b.record("certificates/wall", time.Since(begin).Seconds())
	b.record("certificates/cpu", (cpu() - used).Seconds())
	for _, a := range agents {
		_ = a.conn.Close() // as pilot-agent does
	}
	idle := func(figure string) error {
		if err := b.pause(3 * time.Second); err != nil { // for acknowledgements and the collector
			return err
		}
		used := cpu()
		if err := b.pause(b.sizes.idle); err != nil {
			return err
		}
		b.record("certificates/"+figure, 100*(cpu()-used).Seconds()/b.sizes.idle.Seconds())
		return err
	}
	if err := idle("idle"); err != nil {
		return err
	}
	if err := together(agents[:stayingAgents], func(a *newcomer) error { return a.stay(b.ctx, d) }); err != nil {
		return err
	}
	return idle("idle-with-streams")
}

// newcomer is an agent that has a token and a key.
type newcomer struct {
	namespace, account, token, csr string
	credentials                    credentials.TransportCredentials
	conn                           *grpc.ClientConn
}

// newcomers are agents that have sent nothing yet.
func newcomers(d *testbed.Discovery, round int) ([]*newcomer, error) {
	list := make([]*newcomer, startingAgents)
	for i := range list {
		var err error
		if list[i], err = newNewcomer(d, namespace(i%namespaces), fmt.Sprintf("account-%d-%d", round, i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// newNewcomer is the agent of an account.
func newNewcomer(d *testbed.Discovery, namespace, account string, options ...grpc.DialOption) (*newcomer, error) {
	roots, err := os.ReadFile(filepath.Join(d.StateDir, "root-cert.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	signer, err := identity.LoadLocalKey(statefile.Dir(d.StateDir))
	if err != nil {
		return nil, err
	}
	a := &newcomer{namespace: namespace, account: account, credentials: credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})}
	if a.token, err = signer.Issue(a.namespace, a.account, []string{identity.Audience}, time.Now(), time.Hour); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	a.csr = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	a.conn, err = grpc.NewClient(d.Secure, append(options, grpc.WithTransportCredentials(a.credentials))...)
	return a, err
}

// together does something for all agents at once.
func together(agents []*newcomer, what func(*newcomer) error) error {
	errs := make([]error, len(agents))
	var group sync.WaitGroup
	for i, a := range agents {
		group.Go(func() { errs[i] = what(a) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (a *newcomer) certify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(a.shows(ctx), patience)
	defer cancel()
	got, err := security.NewIstioCertificateServiceClient(a.conn).CreateCertificate(ctx,
		&security.IstioCertificateRequest{Csr: a.csr, ValidityDuration: 86400}, grpc.WaitForReady(true))
	if err == nil && len(got.GetCertChain()) < 2 {
		err = fmt.Errorf("%d certificates", len(got.GetCertChain()))
	}
	return err
}

func (a *newcomer) shows(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token)
}

// stay connects again and opens an xDS stream. It returns when the first answer has arrived.
func (a *newcomer) stay(ctx context.Context, d *testbed.Discovery) (err error) {
	if a.conn, err = grpc.NewClient(d.Secure, grpc.WithTransportCredentials(a.credentials)); err != nil {
		return err
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(a.conn).DeltaAggregatedResources(a.shows(ctx))
	if err != nil {
		return err
	}
	n := node(0, 0, 0)
	n.Id = fmt.Sprintf("sidecar~192.168.0.1~%s.%s~%s.svc.cluster.local", a.account, a.namespace, a.namespace)
	n.Metadata.Fields["NAMESPACE"] = structpb.NewStringValue(a.namespace)
	n.Metadata.Fields["SERVICE_ACCOUNT"] = structpb.NewStringValue(a.account)
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: resource.Cluster.URL()}); err != nil {
		return err
	}
	got, err := stream.Recv()
	if err != nil {
		return err
	}
	return stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.GetTypeUrl(), ResponseNonce: got.GetNonce()})
}
