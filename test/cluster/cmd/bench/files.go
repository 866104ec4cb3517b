package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fromFiles makes the changes of endpointCase in a directory of files, which a second pilot-discovery reads.
func fromFiles(ctx context.Context, w *world) (run, error) {
	dir := filepath.Join(w.dir, "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return run{}, err
	}
	for n := range smallWorld {
		if err := writeService(dir, n, true); err != nil {
			return run{}, err
		}
	}
	p, err := planeWith(w.plane.binary, filepath.Join(w.dir, "files"), "--configDir="+dir, "--registries=")
	if err != nil {
		return run{}, err
	}
	defer p.stop()
	if _, err := p.start(ctx); err != nil {
		return run{}, err
	}
	f, err := newFleet(ctx, p.grpc, manyStreams)
	if err != nil {
		return run{}, err
	}
	defer f.close()
	return measured(ctx, p, f, func(i int) (time.Time, error) {
		at := time.Now()
		return at, writeService(dir, i/2, i%2 == 1)
	})
}

// writeService writes a service with its endpoints, in a file of its own, whole at once.
func writeService(dir string, n int, both bool) error {
	text := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: %s}
spec:
  hosts: [%s.%s.svc.cluster.local]
  addresses: [10.96.%d.%d]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  endpoints:
  - {address: %s, labels: {app: %s, version: v1}}
`, serviceName(n), namespaceOf(n), serviceName(n), namespaceOf(n), n>>8, n&0xff, address(n, 1, 0), serviceName(n))
	if both {
		text += fmt.Sprintf("  - {address: %s, labels: {app: %s, version: v1}}\n", address(n, 0, 0), serviceName(n))
	}
	path := filepath.Join(dir, serviceName(n)+".yaml")
	if err := os.WriteFile(path+".tmp", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
