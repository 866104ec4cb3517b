package proxyconfig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/install/pods"
	"github.com/pilotmesh/pilot/internal/run"
)

// adminPort is the port of Envoy's admin interface on the loopback address of a pod.
const adminPort = 15000

// maxDump bounds the response of an Envoy.
const maxDump = 512 << 20

// envoyFlags say how to reach the Envoy of a proxy.
type envoyFlags struct{ admin, namespace, kubeconfig, context string }

func (f *envoyFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.admin, "admin", "", "address of Envoy's admin interface, such as http://127.0.0.1:15000 on the host of the proxy")
	set.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the pod, if PROXY does not name it")
	set.StringVarP(&f.kubeconfig, "kubeconfig", "c", "", "kubeconfig file of the cluster of the pod (default $KUBECONFIG, or ~/.kube/config)")
	set.StringVar(&f.context, "context", "", "context of the kubeconfig (default its current one)")
}

// envoy is the admin interface of an Envoy. The caller calls end after the last request.
type envoy struct {
	url string
	end func()
}

// open returns the admin interface of a proxy: at --admin, or through the API server in the pod of the proxy.
func (f *envoyFlags) open(ctx context.Context, address, proxy string) (*envoy, error) {
	if f.admin != "" {
		return &envoy{f.admin, func() {}}, nil
	}
	namespace, pod, err := f.pod(ctx, address, proxy)
	if err != nil {
		return nil, err
	}
	access, err := console.Connect(f.kubeconfig, f.context)
	if err != nil {
		return nil, run.Usage(fmt.Errorf("Envoy of %s: no way to it is known: name its admin interface with --admin, a dump with --file, or for a pod %w", proxy, err))
	}
	local, end, err := pods.Forward(ctx, access, namespace, pod, adminPort)
	if err != nil {
		return nil, fmt.Errorf("a connection to the pod %s/%s: %w; is it in this cluster (--context), and may you create pods/portforward there? On the host of the proxy, name Envoy's admin interface with --admin", namespace, pod, err)
	}
	return &envoy{"http://" + local, end}, nil
}

// pod returns the pod of a proxy. The control plane completes the name, if it responds.
func (f *envoyFlags) pod(ctx context.Context, address, proxy string) (namespace, name string, err error) {
	full := proxy
	if f.namespace != "" && !strings.HasSuffix(proxy, "."+f.namespace) {
		full = proxy + "." + f.namespace
	}
	ctx, cancel := context.WithTimeout(ctx, console.Completing)
	defer cancel()
	list := []admin.Sync{}
	if console.Get(ctx, address, "/debug/syncz", url.Values{"proxy": {full}}, &list) == nil && len(list) > 0 {
		full = list[0].Proxy
	}
	dot := strings.LastIndexByte(full, '.')
	if dot <= 0 || dot == len(full)-1 {
		return "", "", run.Usage(fmt.Errorf("%q names no pod: write POD.NAMESPACE, or name the namespace with -n", proxy))
	}
	return full[dot+1:], full[:dot], nil
}

// ask sends a request to Envoy and returns the body of the response.
func (e *envoy) ask(ctx context.Context, method, page string, query url.Values) ([]byte, error) {
	at, err := console.PageAt(e.url, page, query)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, console.RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return nil, run.Usage(fmt.Errorf("--admin: %w", err))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("request to Envoy: %w; does it run, and is this its admin interface?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDump))
	if err != nil {
		return nil, fmt.Errorf("request to Envoy: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Envoy answered %s to %s: %s", resp.Status, page, strings.TrimSpace(string(body[:min(len(body), 500)])))
	}
	return body, nil
}
