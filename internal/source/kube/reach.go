package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"

	"github.com/pilotmesh/pilot/internal/api"
)

// reach records whether the API server answers.
type reach struct {
	// answers is true from the first answer of the API server until it becomes unreachable.
	answers bool
	// failures is the number of failed requests since the last answer, and since the time of the first failure.
	failures int
	since    time.Time
	// lost is true while the cluster has the problem that its API server is unreachable.
	lost bool
}

// lostAfter is the number of requests that must fail one after the other for the cluster to have a problem. One failure is
// normal when an API server behind a load balancer is restarted.
const lostAfter = 2

// answered takes in the result of a request.
func (r *run) answered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	why := unreachable(err)
	r.update(func() {
		now := &r.reach
		if why == nil {
			r.reached()
			return
		}
		if now.failures++; now.failures == 1 {
			now.since = time.Now()
		}
		if now.failures < lostAfter || now.lost {
			return
		}
		now.lost, now.answers = true, false
		r.o.Log.Error("cannot reach the API server", "cluster", r.o.Cluster, "server", r.o.Config.Host, "error", why)
		consequence := "its last known state, which is stale, is served"
		if !r.synced {
			consequence = "nothing is known of it yet"
		}
		r.note("reach", api.Error, fmt.Sprintf("cannot reach the API server %s of cluster %s since %s: %v; %s; check the address, the network and the credentials",
			r.o.Config.Host, r.o.Cluster, now.since.UTC().Format(time.RFC3339), why, consequence))
	})
}

// reached takes in an answer of the API server.
func (r *run) reached() {
	if r.reach.lost {
		r.o.Log.Info("the API server answers again", "cluster", r.o.Cluster, "after", time.Since(r.reach.since).Round(time.Second))
	}
	r.note("reach", api.Error, "")
	if !r.reach.answers {
		select {
		case r.reconnected <- struct{}{}:
		default:
		}
	}
	r.reach = reach{answers: true}
}

// unreachable returns why a request got no answer of a working API server that accepts the credentials; nil if it got one.
func unreachable(err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusUnauthorized, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return err
		}
		return nil
	}
	_, request := errors.AsType[*url.Error](err)
	_, network := errors.AsType[net.Error](err)
	if request || network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// The oldest supported version of the API server. The control plane is not tested with older ones.
const (
	oldestMajor = 1
	oldestMinor = 29
)

// versionTimeout limits the request for the version.
const versionTimeout = 10 * time.Second

// checkVersion reports an API server that is too old.
func (r *run) checkVersion(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	data, err := r.clients.core.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return // not every role allows it, and whether the server can be reached is found out elsewhere
	}
	r.update(func() {
		v, old := tooOld(data)
		if !old {
			r.note("version", api.Error, "")
			return
		}
		r.note("version", api.Error, fmt.Sprintf("the API server of cluster %s has version %s, the oldest supported version is v%d.%d; upgrade the cluster",
			r.o.Cluster, v, oldestMajor, oldestMinor))
	})
}

// tooOld reads the answer of an API server to a request for its version. A version that cannot be read is not too old.
func tooOld(answer []byte) (v string, old bool) {
	var info version.Info
	if err := json.Unmarshal(answer, &info); err != nil {
		return "", false
	}
	major, err := strconv.Atoi(info.Major)
	if err != nil {
		return "", false
	}
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	if err != nil {
		return "", false
	}
	return info.GitVersion, major < oldestMajor || major == oldestMajor && minor < oldestMinor
}
