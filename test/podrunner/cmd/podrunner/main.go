// Command podrunner runs one node until it is interrupted, and then removes everything of it from the machine. It is
// package podrunner for clusters that are not started by a Go program, and for tests that kill a node.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/pilotmesh/pilot/test/podrunner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "podrunner:", err)
		os.Exit(1)
	}
}

// settings are the flags that are not options yet.
type settings struct {
	kubeconfig, images       string
	cert, key, clientCA      string
	podCIDRs, dns, labelList string
	verbose                  bool
}

func run(ctx context.Context, args []string) error {
	var s settings
	var o podrunner.Options
	flags := flag.NewFlagSet("podrunner", flag.ContinueOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "credentials of system:node:NAME in the group system:nodes")
	flags.StringVar(&o.Node, "node", "", "the node's name")
	flags.StringVar(&s.labelList, "labels", "", "more labels of the node: a=b,c=d")
	flags.StringVar(&s.podCIDRs, "pod-cidrs", "", "addresses of its pods, for instance 10.1.0.0/22,fd00:1::/64; the first address of each is the node's")
	flags.StringVar(&o.Bridge, "bridge", "", "name of the bridge to make, at most 10 characters; other names on the machine begin with it")
	flags.StringVar(&s.dns, "cluster-dns", "", "address of the cluster's DNS server")
	flags.StringVar(&o.Domain, "domain", "cluster.local", "the cluster's domain")
	flags.StringVar(&s.cert, "cert", "", "certificate of the node's own API")
	flags.StringVar(&s.key, "key", "", "key of that certificate")
	flags.StringVar(&s.clientCA, "client-ca", "", "certificates of the signers of callers of that API")
	flags.StringVar(&s.images, "images", "", "the image map")
	flags.StringVar(&o.Root, "root", "", "directory for the node's state; the content of an earlier run is removed")
	flags.StringVar(&o.Init, "init", "", "the program podrunner-init (default: it is built)")
	flags.DurationVar(&o.RenewTokens, "renew-tokens", 0, "how long a projected token is used at most (default: as the kubelet, a day)")
	flags.BoolVar(&s.verbose, "v", false, "say more")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading flags: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := s.complete(&o); err != nil {
		return err
	}
	return podrunner.Run(ctx, o)
}

// complete reads what the flags name.
func (s settings) complete(o *podrunner.Options) error {
	level := slog.LevelWarn
	if s.verbose {
		level = slog.LevelDebug
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	var err error
	if o.Config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
		return fmt.Errorf("-kubeconfig: %w", err)
	}
	for text := range strings.SplitSeq(s.podCIDRs, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("-pod-cidrs: %w", err)
		}
		o.PodCIDRs = append(o.PodCIDRs, prefix)
	}
	if o.ClusterDNS, err = netip.ParseAddr(s.dns); err != nil {
		return fmt.Errorf("-cluster-dns: %w", err)
	}
	if o.Serving, err = tls.LoadX509KeyPair(s.cert, s.key); err != nil {
		return fmt.Errorf("-cert and -key: %w", err)
	}
	authorities, err := os.ReadFile(s.clientCA)
	if err != nil {
		return fmt.Errorf("-client-ca: %w", err)
	}
	if o.ClientCAs = x509.NewCertPool(); !o.ClientCAs.AppendCertsFromPEM(authorities) {
		return fmt.Errorf("-client-ca: %s holds no certificate", s.clientCA)
	}
	if o.Images, err = podrunner.ReadImages(s.images); err != nil {
		return err
	}
	if s.labelList == "" {
		return nil
	}
	o.Labels = map[string]string{}
	for label := range strings.SplitSeq(s.labelList, ",") {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return fmt.Errorf("-labels: %q is not name=value", label)
		}
		o.Labels[name] = value
	}
	return nil
}
