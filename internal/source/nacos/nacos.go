// Package nacos reads the services of Nacos: the names of services in each group, and their instances.
//
// A server of version 2 or later pushes the instances of known services over its protocol on gRPC; new names are asked for in each refresh interval. A
// server that does not answer there is asked for everything in each interval, by its open API over HTTP. Nacos' client for Go would bring hundreds of modules,
// and writes logs and caches of its own.
//
// Invariants:
//   - A service whose instances cannot be read keeps its last instances, because the whole reading fails.
//   - The end of a push connection is a loss of sight: the next reading is a first list.
//   - The token is renewed before it ends. After a refused login the next one waits, because servers limit logins.
//   - Secrets are sent in bodies and headers, and never in URLs.
//
// Goroutines: some that read services, and one that receives pushes, which Run waits for.
package nacos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/source/dubbo"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

const (
	parallel = 16
	pageSize = 500
	// patience is how long an answer may take.
	patience = 10 * time.Second
	// loginPause is the pause after a refused login.
	loginPause = 15 * time.Second
	// leastTTL is the least time for which a token is used.
	leastTTL = 10 * time.Second
)

// errLogin is a refused login.
var errLogin = errors.New("the server refuses the user or password in authFile")

// pushRetry is the pause before a server that has never answered over gRPC is tried again.
const pushRetry = time.Minute

// reader reads one Nacos.
type reader struct {
	entry  registries.Entry
	access registries.Access
	client *registries.Client
	log    *slog.Logger

	token  string
	renew  time.Time
	bodies map[listing]string // the last answer for each service

	push   *push     // nil while the server is asked over HTTP
	pushed bool      // there was a push connection
	retry  time.Time // when the next one may be tried
}

// New returns a reader of a Nacos. It is a registries.Factory.
func New(e registries.Entry, a registries.Access, log *slog.Logger) (registries.Reader, error) {
	return &reader{entry: e, access: a, client: registries.NewClient(e, a, nil, parallel), log: log, bodies: map[listing]string{}}, nil
}

// Run implements registries.Reader.
func (r *reader) Run(ctx context.Context, to registries.Listener) {
	defer r.client.Close()
	defer r.hangUp()
	pause := registries.NewBackoff()
	for listed := false; ; {
		touched, err := r.read(ctx)
		if err == nil {
			pause.Reset()
			if !listed {
				to.List(r.services(nil), true)
			} else if len(touched) > 0 {
				to.Change(r.services(touched))
			}
			listed = true
			err = r.wait(ctx, to)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		listed = false
		r.hangUp()
		switch {
		case errors.Is(err, errLogin):
			to.Refused(err)
			if !registries.Pause(ctx, loginPause) {
				return
			}
			continue
		case registries.IsRefusal(err):
			to.Refused(err)
		default:
			to.Lost(err)
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// wait passes on pushes until it is time to read again, or until the connection for them ends.
func (r *reader) wait(ctx context.Context, to registries.Listener) error {
	timer := time.NewTimer(r.entry.Refresh)
	defer timer.Stop()
	var news chan struct{}
	var failed chan error
	if r.push != nil {
		news, failed = r.push.news, r.push.failed
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case err := <-failed:
			return err
		case <-news:
			touched := map[string]bool{}
			for l, is := range r.push.take() {
				if r.bodies[l] != is.body {
					r.bodies[l] = is.body
					touched[r.keyOf(l)] = true
				}
			}
			if len(touched) > 0 {
				to.Change(r.services(touched))
			}
		}
	}
}

// hangUp ends the connection for pushes.
func (r *reader) hangUp() {
	if r.push != nil {
		r.push.close()
		r.push = nil
	}
}

// dial opens the connection for pushes, if the server has one. A refusal is an error.
func (r *reader) dial(ctx context.Context) error {
	if r.push != nil || !r.pushed && time.Now().Before(r.retry) {
		return nil
	}
	p, err := openPush(ctx, r.entry, r.access, r.token)
	switch {
	case err == nil:
		r.push, r.pushed = p, true
		return nil
	case registries.IsRefusal(err):
		return err
	case !r.pushed:
		r.retry = time.Now().Add(pushRetry)
		r.log.Info("Nacos is asked over HTTP, because it does not push over gRPC", "error", err, "next_attempt_after", pushRetry)
	}
	return nil
}

// listing is a service whose instances are read.
type listing struct{ group, name string }

func (l listing) compare(o listing) int {
	return cmp.Or(strings.Compare(l.group, o.group), strings.Compare(l.name, o.name))
}

// key is the name of the service among all.
func (l listing) key() string { return l.group + "@@" + l.name }

// keyOf is the name of the service of a listing among all. Several listings may be one interface of Dubbo.
func (r *reader) keyOf(l listing) string {
	key, _ := decode(l, r.entry.NacosNamespaceID, []byte("{}"))
	return key
}

// services are the services with some names, nil for all, by the last answers. A name without an answer has a nil service.
func (r *reader) services(wanted map[string]bool) registries.Services {
	out := registries.Services{}
	for key := range wanted {
		out[key] = nil
	}
	for _, l := range slices.SortedFunc(maps.Keys(r.bodies), listing.compare) {
		if wanted != nil && !wanted[r.keyOf(l)] {
			continue
		}
		key, s := decode(l, r.entry.NacosNamespaceID, []byte(r.bodies[l]))
		if was := out[key]; was != nil {
			s.Instances, s.Unread = append(s.Instances, was.Instances...), append(s.Unread, was.Unread...)
		}
		out[key] = s
	}
	return out
}

// read reads the names of services, and instances that are not pushed. It returns the names of the services that differ from before.
func (r *reader) read(ctx context.Context) (touched map[string]bool, err error) {
	if err := r.login(ctx); err != nil {
		return nil, err
	}
	if err := r.dial(ctx); err != nil {
		return nil, r.expired(err)
	}
	var list []listing
	for _, group := range r.entry.NacosGroups {
		names, err := r.names(ctx, group)
		if err != nil {
			return nil, r.expired(err)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "consumers:") && r.entry.Active(name) {
				list = append(list, listing{group, name})
			}
		}
	}
	bodies, err := r.instances(ctx, list)
	if err != nil {
		return nil, r.expired(err)
	}
	touched = map[string]bool{}
	for l, is := range bodies {
		if was, ok := r.bodies[l]; !ok || was != is {
			touched[r.keyOf(l)] = true
		}
	}
	for l := range r.bodies {
		if _, ok := bodies[l]; !ok {
			touched[r.keyOf(l)] = true
			r.forget(ctx, l)
		}
	}
	r.bodies = bodies
	return touched, nil
}

// forget ends the pushes about a service.
func (r *reader) forget(ctx context.Context, l listing) {
	if r.push == nil {
		return
	}
	if _, ok := r.push.subscribed[l]; ok {
		delete(r.push.subscribed, l)
		_, _ = r.push.follow(ctx, l, false) // pushes about it are not listened to any more in any case
	}
}

// expired forgets the token if the server refuses it.
func (r *reader) expired(err error) error {
	if registries.IsRefusal(err) && r.token != "" {
		r.token = ""
		return fmt.Errorf("the token is not accepted any more, so that a new login follows: %v", err) //nolint:errorlint // it is no refusal of the user
	}
	return err
}

// login gets a token, unless there is one or none is needed.
func (r *reader) login(ctx context.Context) error {
	user, password := r.access.Auth[registries.NacosUsername], r.access.Auth[registries.NacosPassword]
	if user == "" || r.token != "" && time.Now().Before(r.renew) {
		return nil
	}
	a, err := r.client.Post(ctx, patience, "/nacos/v1/auth/login", url.Values{"username": {user}, "password": {password}})
	var status *registries.StatusError
	if errors.As(err, &status) && status.Status < 500 {
		r.token = ""
		return fmt.Errorf("%w (%d)", errLogin, status.Status)
	}
	if err != nil {
		return err
	}
	var got struct {
		AccessToken string
		TokenTTL    int64 `json:"tokenTtl"`
	}
	if err := json.Unmarshal(a.Body, &got); err != nil || got.AccessToken == "" {
		return fmt.Errorf("%w: the answer to the login has no token", errLogin)
	}
	if r.token = got.AccessToken; r.push != nil {
		r.push.token = r.token
	}
	r.renew = time.Now().Add(max(time.Duration(got.TokenTTL)*time.Second*4/5, leastTTL))
	return nil
}

func (r *reader) get(ctx context.Context, path string, q url.Values) ([]byte, error) {
	if r.entry.NacosNamespaceID != "public" {
		q.Set("namespaceId", r.entry.NacosNamespaceID)
	}
	header := http.Header{}
	if r.token != "" {
		header.Set("accessToken", r.token)
		header.Set("Authorization", "Bearer "+r.token)
	}
	a, err := r.client.Get(ctx, patience, path, q, header)
	if err != nil {
		return nil, err
	}
	return a.Body, nil
}

// names lists the services of a group.
func (r *reader) names(ctx context.Context, group string) (names []string, err error) {
	if r.push != nil {
		return r.push.names(ctx, group)
	}
	for page := 1; ; page++ {
		body, err := r.get(ctx, "/nacos/v1/ns/service/list", url.Values{
			"pageNo": {strconv.Itoa(page)}, "pageSize": {strconv.Itoa(pageSize)}, "groupName": {group},
		})
		if err != nil {
			return nil, err
		}
		var got struct {
			Count int
			Doms  []string
		}
		if err := json.Unmarshal(body, &got); err != nil {
			return nil, fmt.Errorf("the list of services of group %s: %w", group, err)
		}
		names = append(names, got.Doms...)
		if len(got.Doms) == 0 || len(names) >= got.Count {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
	}
}

// instances returns the instances of services: the last ones if the server pushes them, and else as it answers now. Some services are asked for at a time.
func (r *reader) instances(ctx context.Context, list []listing) (map[listing]string, error) {
	ask := slices.Clone(list)
	bodies := make(map[listing]string, len(list))
	if r.push != nil {
		ask = slices.DeleteFunc(ask, func(l listing) bool {
			_, follows := r.push.subscribed[l]
			if follows {
				bodies[l] = r.bodies[l]
			}
			return follows
		})
	}
	out, errs := make([]version, len(ask)), make([]error, min(parallel, len(ask)))
	next := make(chan int, len(ask))
	for i := range ask {
		next <- i
	}
	close(next)
	var running sync.WaitGroup
	for worker := range errs {
		running.Go(func() {
			for i := range next {
				if errs[worker] == nil {
					out[i], errs[worker] = r.ask(ctx, ask[i])
				}
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, l := range ask {
		if bodies[l] = out[i].body; r.push != nil {
			r.push.subscribed[l] = out[i].at
		}
	}
	return bodies, nil
}

// ask returns the instances of a service, and subscribes to it if the server pushes.
func (r *reader) ask(ctx context.Context, l listing) (version, error) {
	if r.push != nil {
		return r.push.follow(ctx, l, true)
	}
	body, err := r.get(ctx, "/nacos/v1/ns/instance/list", url.Values{"serviceName": {l.name}, "groupName": {l.group}, "healthyOnly": {"false"}})
	return version{body: string(body)}, err
}

// host is an instance, as the server lists it.
type host struct {
	InstanceID  string `json:"instanceId"`
	IP          string
	Port        uint32
	Weight      *float64
	Healthy     *bool
	Enabled     *bool
	Valid       *bool
	ClusterName string `json:"clusterName"`
	Metadata    map[string]string
}

// decode reads the instances of a service. It returns the name of the service among all. What cannot be read costs itself only.
func decode(l listing, namespace string, body []byte) (string, *registries.Service) {
	key, s := l.key(), &registries.Service{Listed: l.name, HostName: l.name, Suffix: l.group + "." + namespace + ".nacos"}
	params := map[string]string{}
	isDubbo := strings.HasPrefix(l.name, "providers:")
	if isDubbo {
		parts := append(strings.Split(l.name, ":"), "", "", "")
		params["version"], params["group"] = parts[2], parts[3]
		i := dubbo.Interface(parts[1], params)
		one := dubbo.Service(i)
		key, s = dubbo.Key(i), &one
	}
	var got struct{ Hosts []json.RawMessage }
	if err := json.Unmarshal(body, &got); err != nil {
		s.Unread = append(s.Unread, registries.Remark{Place: l.key(), Reason: fmt.Sprintf("its instances cannot be read: %v", err)})
		return key, s
	}
	for n, raw := range got.Hosts {
		var h host
		if err := json.Unmarshal(raw, &h); err != nil {
			s.Unread = append(s.Unread, registries.Remark{Place: fmt.Sprintf("%s[%d]", l.key(), n), Reason: fmt.Sprintf("it cannot be read: %v", err)})
			continue
		}
		if isDubbo {
			s.Instances = append(s.Instances, h.provider(params))
		} else {
			s.Instances = append(s.Instances, h.instance())
		}
	}
	slices.SortFunc(s.Instances, func(a, b registries.Instance) int { return strings.Compare(a.ID, b.ID) })
	return key, s
}

func (h *host) instance() registries.Instance {
	in := registries.Instance{ID: fmt.Sprintf("%s#%d#%s", h.IP, h.Port, h.ClusterName), Address: h.IP, Ports: []registries.Port{{Number: h.Port}}, Labels: map[string]string{}}
	for k, v := range h.Metadata {
		in.Labels[k] = v
	}
	if h.ClusterName != "" {
		in.Labels["nacos-cluster"] = h.ClusterName
	}
	if h.Weight != nil {
		in.Weight = strconv.FormatFloat(*h.Weight, 'g', -1, 64)
	}
	in.Down = h.down()
	return in
}

// down returns why an instance must not get traffic.
func (h *host) down() string {
	switch no := func(b *bool) bool { return b != nil && !*b }; {
	case no(h.Enabled):
		return "enabled is false"
	case no(h.Healthy), no(h.Valid):
		return "healthy is false"
	}
	return ""
}

// provider returns an instance of an interface of Dubbo. params are the parameters of the interface.
func (h *host) provider(params map[string]string) registries.Instance {
	all := map[string]string{}
	for k, v := range h.Metadata {
		all[k] = v
	}
	for k, v := range params {
		all[k] = v
	}
	scheme := all["protocol"]
	if scheme == "" {
		scheme = "dubbo"
	}
	in := dubbo.Provider{Scheme: scheme, Address: h.IP, Port: h.Port, Params: all}.Instance()
	if in.Weight == "" && h.Weight != nil {
		in.Weight = strconv.FormatFloat(*h.Weight, 'g', -1, 64)
	}
	if h.ClusterName != "" {
		in.Labels["nacos-cluster"] = h.ClusterName
	}
	if down := h.down(); down != "" {
		in.Down = down
	}
	return in
}
