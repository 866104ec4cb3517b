package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/testbed"
)

// What the sample says. Its ports are used if they are free; else the stage's copy of the sample is given others.
const (
	sample    = "samples/bookstore"
	host      = "reviews.bookstore.svc.cluster.local"
	routes    = "routes.yaml"
	frontPort = 19080 // of the service, where Envoy listens
	v1Port    = 19081
	v2Port    = 19082
)

// stage is everything the demo runs.
type stage struct {
	w         io.Writer
	dir       string
	port      int // of the service
	discovery *testbed.Discovery
	envoy     *testbed.Envoy
	backends  []*testbed.Backend
	load      *testbed.Load
	failed    int
	first     error // of the failed requests
}

// openStage starts all parts, and stops those it has started if one does not.
func openStage(ctx context.Context, root string, w io.Writer) (_ *stage, err error) {
	binary := filepath.Join(root, "bin", "pilot-discovery")
	if _, err := os.Stat(binary); err != nil {
		return nil, errors.New("bin/pilot-discovery is not built: run `make demo`, or `make build` first")
	}
	envoyBinary, version, err := envoy.Find(ctx, root)
	if err != nil {
		return nil, err
	}
	s := &stage{w: w}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "pilot-demo-"); err != nil {
		return nil, err
	}
	if s.discovery, err = testbed.NewDiscovery(binary, s.dir); err != nil {
		return nil, err
	}
	if err := s.furnish(filepath.Join(root, sample)); err != nil {
		return nil, err
	}
	if err := s.discovery.Start(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "demo: pilot-discovery serves %s\n", s.discovery.ConfigDir)
	s.envoy, err = testbed.StartEnvoy(ctx, envoyBinary, s.dir, testbed.Node{
		Name: "client", Namespace: "bookstore", Discovery: s.discovery.GRPC,
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "demo: Envoy %s listens for %s at %s\n", version, host, testbed.Loopback(s.port))
	s.load = testbed.StartLoad(ctx, s.port, host, 4, 100)
	return s, nil
}

// furnish starts the backends and copies the sample, with other ports where its own are taken.
func (s *stage) furnish(from string) error {
	s.port = frontPort
	if l, err := net.Listen("tcp", testbed.Loopback(frontPort)); err == nil {
		l.Close()
	} else if ports, err := testbed.FreePorts(1); err == nil {
		s.port = ports[0]
	} else {
		return err
	}
	renumber := []string{strconv.Itoa(frontPort), strconv.Itoa(s.port)}
	for i, port := range []int{v1Port, v2Port} {
		name := fmt.Sprintf("v%d", i+1)
		b, err := testbed.StartHTTP(name, port)
		if err != nil {
			if b, err = testbed.StartHTTP(name, 0); err != nil {
				return err
			}
		}
		s.backends = append(s.backends, b)
		renumber = append(renumber, strconv.Itoa(port), strconv.Itoa(b.Port))
	}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no sample in %s: %w", from, errors.Join(err, os.ErrNotExist))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if _, err := s.discovery.Write(filepath.Base(f), strings.NewReplacer(renumber...).Replace(string(text))); err != nil {
			return err
		}
	}
	return nil
}

// close stops everything that was started, in the order that keeps requests working longest.
func (s *stage) close() {
	if s.load != nil {
		s.load.Stop()
	}
	if s.envoy != nil {
		s.envoy.Stop()
	}
	if s.discovery != nil {
		s.discovery.Stop()
	}
	for _, b := range s.backends {
		_ = b.Close()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

var weightLine = regexp.MustCompile(`(?m)^(\s*weight:) \d+$`)

// reweigh writes the routes with v2 at the given weight, as an editor would.
func (s *stage) reweigh(v2 int) (edit, error) {
	path := filepath.Join(s.discovery.ConfigDir, routes)
	text, err := os.ReadFile(path)
	if err != nil {
		return edit{}, err
	}
	weights := []int{100 - v2, v2}
	edited := weightLine.ReplaceAllStringFunc(string(text), func(line string) string {
		if len(weights) == 0 {
			return line
		}
		w := weights[0]
		weights = weights[1:]
		return weightLine.ReplaceAllString(line, fmt.Sprintf("$1 %d", w))
	})
	at, err := s.discovery.Write(routes, edited)
	return edit{at: at}, err
}
