// Package check says whether a cluster is fit for a control plane, and whether the one that is installed can do its work: the version of the API
// server, permissions, definitions of kinds, control planes and webhooks beside each other, clocks, certificates, and the injection of a pod.
//
// Invariants: it changes nothing on the cluster; its pod is a dry run. Each check has an answer, also if another one failed; a check
// that cannot be made says so. Goroutines: the package starts none.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/ctl/install"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Result string `json:"result"`
	Remedy string `json:"remedy,omitempty"`
	Page   string `json:"page,omitempty"`
}

// page explains remedies.
const page = "doc/install.md"

// Options say about which control plane questions are.
type Options struct {
	Namespace, Revision string
	// Version is the version of the program.
	Version string
	// Now is the time of the machine.
	Now func() time.Time
}

// doctor asks one cluster.
type doctor struct {
	Options

	// Clients of the groups alone: one of all groups would make the program some megabytes larger.
	core      *kubeclient.Core
	apps      *kubeclient.Apps
	hooksOf   *kubeclient.Hooks
	access    *kubeclient.Creator[*authorization.SelfSubjectAccessReview]
	endpoints *kubeclient.EndpointSlices
	dynamic   dynamic.Interface
	cluster   *install.Cluster
	date      time.Time // of the API server's last response
	found     []Finding
	record    *install.Record
}

// connect makes the clients. It sends no request.
func (d *doctor) connect(access *rest.Config) error {
	var failed [7]error
	d.cluster, failed[0] = install.Connect(access)
	access.Wrap(func(next http.RoundTripper) http.RoundTripper { return clock{next, d} })
	d.core, failed[1] = kubeclient.NewCore(access)
	d.apps, failed[2] = kubeclient.NewApps(access)
	d.hooksOf, failed[3] = kubeclient.NewHooks(access)
	d.access, failed[4] = kubeclient.OwnAccessReviews(access)
	d.endpoints, failed[5] = kubeclient.NewEndpointSlices(access)
	d.dynamic, failed[6] = dynamic.NewForConfig(access)
	if err := errors.Join(failed[:]...); err != nil {
		return fmt.Errorf("a client for the cluster: %w", err)
	}
	return nil
}

// clock keeps the time that the API server states in its responses.
type clock struct {
	http.RoundTripper

	of *doctor
}

// RoundTrip implements http.RoundTripper.
func (c clock) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			c.of.date = t
		}
	}
	return resp, err
}

// Run makes all checks. Only a cluster that no client can be made for is an error.
func Run(ctx context.Context, access *rest.Config, o Options) ([]Finding, error) {
	d := &doctor{Options: o}
	access = rest.CopyConfig(access)
	access.QPS, access.Burst = 100, 200
	if err := d.connect(access); err != nil {
		return nil, err
	}
	if !d.server(ctx) {
		return d.found, nil // all others would fail for the same reason
	}
	d.time()
	d.permissions(ctx)
	d.definitions(ctx)
	d.installation(ctx)
	d.controlPlanes(ctx)
	d.webhooks(ctx)
	d.certificates(ctx)
	d.injection(ctx)
	return d.found, nil
}

func (d *doctor) add(check string, level Level, remedy, format string, args ...any) {
	f := Finding{Check: check, Level: level, Result: fmt.Sprintf(format, args...), Remedy: remedy}
	if level != OK {
		f.Page = page
	}
	d.found = append(d.found, f)
}

// unable is the finding of a check that cannot be made.
func (d *doctor) unable(check string, err error) {
	d.add(check, Warning, "give your account the permission to read that", "this cannot be checked: %v", err)
}

// oldest is the first minor version of Kubernetes that has all that the charts use.
const oldest = 27

// answersWithin is how long the API server may take to state its version.
const answersWithin = 32 * time.Second

// server checks whether the API server answers, and its version.
func (d *doctor) server(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var v version.Info
	data, err := d.core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		d.add("api server", Error, "check the kubeconfig and the way to the API server (kubectl version)", "it does not answer: %v", err)
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(v.Major+"."+v.Minor, "%d.%d", &major, &minor); err != nil {
		d.add("api server", Warning, "", "its version %q is not understood", v.GitVersion)
		return true
	}
	if major == 1 && minor < oldest {
		d.add("api server", Error, fmt.Sprintf("upgrade Kubernetes to 1.%d or newer", oldest), "its version is %s", v.GitVersion)
		return true
	}
	d.add("api server", OK, "", "its version is %s", v.GitVersion)
	return true
}

// Clocks that differ more than this make new certificates and tokens count as not valid yet.
const (
	skewWarning = 5 * time.Second
	skewError   = time.Minute
)

// time compares the clocks of this machine and of the API server.
func (d *doctor) time() {
	if d.date.IsZero() {
		d.add("clock", Warning, "", "the API server states no time")
		return
	}
	skew := d.Now().Sub(d.date).Abs().Truncate(time.Second)
	level, remedy := OK, ""
	if skew >= skewWarning {
		level, remedy = Warning, "synchronise the clocks of this machine and of the nodes (NTP): certificates are valid from the time of their issue"
	}
	if skew >= skewError {
		level = Error
	}
	d.add("clock", level, remedy, "the API server's and this machine's differ by %v", skew)
}

// definitions checks which versions of Istio's kinds are defined.
func (d *doctor) definitions(ctx context.Context) {
	const check = "definitions"
	want, err := install.Render(install.Definitions, install.Release{}, nil)
	if err != nil {
		d.unable(check, err)
		return
	}
	at := d.dynamic.Resource(resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
	missing, good := 0, 0
	for _, w := range want {
		is, err := at.Get(ctx, w.GetName(), metav1.GetOptions{})
		if notFound(err) {
			missing++
			continue
		}
		if err != nil {
			d.unable(check, err)
			return
		}
		var lost []string
		for _, v := range served(w) {
			if !slices.Contains(served(is), v) {
				lost = append(lost, v)
			}
		}
		if len(lost) > 0 {
			d.add(check, Error, "apply the chart pilot-crds (pilotctl manifest shows it)", "%s does not serve the versions %v", w.GetName(), lost)
			continue
		}
		good++
	}
	switch {
	case missing == len(want):
		d.add(check, OK, "", "no kind of Istio is defined; install defines them")
	case missing > 0:
		d.add(check, Warning, "call pilotctl install, or apply the chart pilot-crds", "%d kinds are not defined", missing)
	default:
		d.add(check, OK, "", "%d kinds are defined, with all versions", good)
	}
}
