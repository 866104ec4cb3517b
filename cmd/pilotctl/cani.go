package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/run"
)

func canICommand() *cobra.Command {
	var d described.Request
	c := &cobra.Command{
		Use:   "can-i --from NAMESPACE/ACCOUNT --to HOST:PORT [FILE|DIR|-]...",
		Short: "Show whether a request is allowed, and which rule decides",
		Long: `can-i describes a request to a service and says what the workloads behind it answer: whether the request is allowed or denied,
which policy decides, and which of its rules, with file and line. It evaluates the listeners that the proxies of these workloads are
given, in the order of Envoy: filter chains and mutual TLS, external authorizers (CUSTOM), tokens (RequestAuthentication), then
AUDIT, DENY and ALLOW. If workloads answer differently, each answer is shown with the number of workloads.

Without files, a running control plane answers. With files, can-i reads configuration like analyze and answers as if each
workload had a connected sidecar.

The answer lists the steps of the way: whether the client's proxy has the host (if it has not, outboundTrafficPolicy decides whether the
request passes in plain text), which VirtualService decides, how the client speaks
TLS (the DestinationRule, or else automatic mutual TLS, unless --plaintext or --mtls say otherwise), whether a proxy is connected at the
workload, its mode of mutual TLS (PeerAuthentication), and the policies. The first step that fails is the answer. Of a VirtualService only
a first rule without a condition is followed; faults and other settings on the client's side are not considered. The claims of a token
count as verified. What the description leaves open does not count as empty: if a rule depends on the address of a client
or on the SNI, and it is not given, the answer is "unknown".

Exit codes: 0 every workload allows it; 1 some workload denies it, or asks an external authorizer; 2 the answer is unknown, or the
command line is invalid.`,
		Example: `  pilotctl can-i --from shop/web --to reviews.shop:9080 --path /reviews/1
  pilotctl can-i --from shop/web --to reviews.shop:9080 --method POST --header x-role=admin
  pilotctl can-i --to reviews.shop:9080 --plaintext --from-ip 10.1.2.3
  pilotctl can-i --from shop/web --to reviews.shop:9080 --jwt-claims '{"iss": "https://issuer", "sub": "user", "groups": ["staff"]}'
  pilotctl can-i --from shop/web --to db.shop:5432 --tcp -o json | jq '.answers[].decider'
  pilotctl can-i --from shop/web --to reviews.shop:9080 mesh/ --meshConfig mesh-settings.yaml`,
	}
	address, form := remote(c), addOutput(c)
	f := c.Flags()
	describe(f, &d)
	meshConfigs := f.StringSlice("meshConfig", nil, "with files: file with mesh settings (MeshConfig); --mesh-config is the same")
	domain := f.String("domain", "cluster.local", "with files: suffix of the names of services in the cluster")
	f.SetNormalizeFunc(analyzeFlag)
	completeCanI(c, address)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := askAccess(cmd, *address, d, args, *meshConfigs, *domain)
		if err != nil {
			return run.Usage(err) // 1 would say that the request is denied
		}
		show := a.Write
		if *form != text {
			show = func(w io.Writer) error { return write(w, *form, a) }
		}
		if err := show(cmd.OutOrStdout()); err != nil {
			return run.Usage(err)
		}
		return exitFor(a)
	}
	return c
}

// describe adds the flags that describe a request.
func describe(f *pflag.FlagSet, d *described.Request) {
	f.StringVar(&d.From, "from", "", "service account of the client, as NAMESPACE/ACCOUNT; none for a client outside the mesh")
	f.StringVar(&d.TrustDomain, "trust-domain", "", "trust domain of the client, if it is not the mesh's own")
	f.StringVar(&d.Address, "from-ip", "", "IP address of the client")
	f.StringVar(&d.To, "to", "", "host and port of the service, short or in full: reviews.shop:9080")
	f.StringVar(&d.Method, "method", "", `method of the request (default "GET")`)
	f.StringVar(&d.Path, "path", "", `path of the request, with its query (default "/")`)
	f.StringVar(&d.Host, "host", "", "Host header (default: what --to says, without port 80)")
	f.StringArrayVar(&d.Headers, "header", nil, "header of the request, as NAME=VALUE; may be repeated")
	f.StringVar(&d.Claims, "jwt-claims", "", "claims of a valid token that the request has, as JSON, or @FILE")
	f.StringVar(&d.ServerName, "sni", "", "name of the server that the client asks for by TLS (SNI)")
	f.BoolVar(&d.Plaintext, "plaintext", false, "the client speaks plain text")
	f.BoolVar(&d.MutualTLS, "mtls", false, "the client speaks mutual TLS of the mesh, whatever the endpoints take")
	f.BoolVar(&d.TCP, "tcp", false, "the connection is not HTTP")
}

// exitFor returns the error that makes the exit code fit the answer.
func exitFor(a *why.Access) error {
	unknown := false
	for _, j := range a.Answers {
		switch j.Verdict {
		case access.Denied, access.Asked:
			return run.ErrFailed
		case access.Unknown:
			unknown = true
		}
	}
	if unknown {
		return run.Usage(errors.New("the answer is unknown; its text says why"))
	}
	return nil
}

// askAccess asks the control plane, or evaluates files if there are any.
func askAccess(cmd *cobra.Command, address string, d described.Request, files, meshConfigs []string, domain string) (*why.Access, error) {
	if d.To == "" {
		return nil, errors.New("--to: say which service the request goes to, as HOST:PORT")
	}
	if name, ok := strings.CutPrefix(d.Claims, "@"); ok {
		claims, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--jwt-claims: %w", err)
		}
		d.Claims = string(claims)
	}
	if len(files)+len(meshConfigs) == 0 {
		var a why.Access
		return &a, get(cmd.Context(), address, "/debug/can-i", d.Query(), &a)
	}
	all, err := evaluated(cmd, files, meshConfigs)
	if err != nil {
		return nil, err
	}
	return all.Access(domain, d)
}

// evaluated reads files for an evaluation without a control plane. It prints the errors in them, because refused objects do not count.
func evaluated(cmd *cobra.Command, files, meshConfigs []string) (*analyze.Analysis, error) {
	all := analyze.New()
	for _, name := range meshConfigs {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all.Mesh(name, data)
	}
	for _, path := range files {
		if err := takePath(all, path, cmd.InOrStdin()); err != nil {
			return nil, err
		}
	}
	p := painter(cmd.ErrOrStderr())
	for _, one := range all.Problems() {
		if shown := admin.NewProblem(one); shown.Level == "error" {
			fmt.Fprintln(cmd.ErrOrStderr(), p.line(shown))
		}
	}
	return all, nil
}

// completeCanI completes the values of flags.
func completeCanI(c *cobra.Command, address *string) {
	fixed := func(list ...string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return list, cobra.ShellCompDirectiveNoFileComp
		}
	}
	complete := map[string]cobra.CompletionFunc{
		"method": fixed("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
		"to": func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return serviceAddresses(cmd.Context(), *address), cobra.ShellCompDirectiveNoFileComp
		},
	}
	for _, name := range []string{"from", "from-ip", "path", "host", "header", "sni", "trust-domain"} {
		complete[name] = fixed()
	}
	for name, list := range complete {
		_ = c.RegisterFlagCompletionFunc(name, list) // it fails only for flags that do not exist
	}
}

// serviceAddresses returns HOST:PORT of each service, or nil if the control plane does not respond.
func serviceAddresses(ctx context.Context, address string) (list []string) {
	ctx, cancel := context.WithTimeout(ctx, console.Completing)
	defer cancel()
	var services []admin.Service
	if get(ctx, address, "/debug/registryz", nil, &services) != nil {
		return nil // completion cannot show an error
	}
	for _, s := range services {
		for _, host := range s.Hosts {
			for _, port := range s.Ports {
				list = append(list, fmt.Sprintf("%s:%d", host, port.Number))
			}
		}
	}
	return list
}
