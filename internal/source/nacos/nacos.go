// Package nacos reads the services of Nacos by its open API over HTTP: the names of services in each group, and their instances.
//
// All is asked for again in each refresh interval; Nacos' client for Go would bring hundreds of modules, and writes logs and caches of its own.
//
// Invariants:
//   - A service whose instances cannot be read keeps its last instances, because the whole reading fails.
//   - The token is renewed before it ends. After a refused login the next one waits, because servers limit logins.
//   - Secrets are sent in bodies and headers, and never in URLs.
//
// Goroutines: some that read services, which Run waits for.
package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// reader reads one Nacos.
type reader struct {
	entry  registries.Entry
	auth   map[string]string
	client *registries.Client

	token  string
	renew  time.Time
	bodies map[string]string // the last answer for each service
}

// New returns a reader of a Nacos. It is a registries.Factory.
func New(e registries.Entry, a registries.Access, _ *slog.Logger) (registries.Reader, error) {
	return &reader{entry: e, auth: a.Auth, client: registries.NewClient(e, a, nil, parallel), bodies: map[string]string{}}, nil
}

// Run implements registries.Reader.
func (r *reader) Run(ctx context.Context, to registries.Listener) {
	defer r.client.Close()
	pause := registries.NewBackoff()
	listed := false
	for {
		all, some, err := r.read(ctx)
		wait := r.entry.Refresh
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLogin):
			to.Refused(err)
			listed, wait = false, loginPause
		case err != nil:
			if registries.IsRefusal(err) {
				to.Refused(err)
			} else {
				to.Lost(err)
			}
			listed = false
			if !pause.Wait(ctx) {
				return
			}
			continue
		case !listed:
			to.List(all, true)
			listed = true
			pause.Reset()
		case len(some) > 0:
			to.Change(some)
		}
		if !registries.Pause(ctx, wait) {
			return
		}
	}
}

// listing is a service whose instances are read.
type listing struct{ group, name string }

// key is the name of the service among all.
func (l listing) key() string { return l.group + "@@" + l.name }

// read reads all services. some are the services that differ from the last reading or are gone.
func (r *reader) read(ctx context.Context) (all, some registries.Services, err error) {
	if err := r.login(ctx); err != nil {
		return nil, nil, err
	}
	var list []listing
	for _, group := range r.entry.NacosGroups {
		names, err := r.names(ctx, group)
		if err != nil {
			return nil, nil, r.expired(err)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "consumers:") && r.entry.Active(name) {
				list = append(list, listing{group, name})
			}
		}
	}
	bodies, err := r.instances(ctx, list)
	if err != nil {
		return nil, nil, r.expired(err)
	}
	all, some = registries.Services{}, registries.Services{}
	for i, l := range list {
		key, s := decode(l, r.entry.NacosNamespaceID, bodies[i])
		if all[key] != nil {
			s.Instances = append(s.Instances, all[key].Instances...)
		}
		all[key] = s
	}
	next := make(map[string]string, len(list))
	for i, l := range list {
		next[l.key()] = string(bodies[i])
	}
	for i, l := range list {
		if was, ok := r.bodies[l.key()]; !ok || was != string(bodies[i]) {
			key, _ := decode(l, r.entry.NacosNamespaceID, bodies[i])
			some[key] = all[key]
		}
	}
	for was := range r.bodies {
		if _, ok := next[was]; !ok {
			group, name, _ := strings.Cut(was, "@@")
			key, _ := decode(listing{group, name}, r.entry.NacosNamespaceID, []byte("{}"))
			some[key] = all[key]
		}
	}
	r.bodies = next
	return all, some, nil
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
	user, password := r.auth[registries.NacosUsername], r.auth[registries.NacosPassword]
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
	r.token = got.AccessToken
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

// instances reads the instances of services, some at a time.
func (r *reader) instances(ctx context.Context, list []listing) ([][]byte, error) {
	out, errs := make([][]byte, len(list)), make([]error, min(parallel, len(list)))
	next := make(chan int, len(list))
	for i := range list {
		next <- i
	}
	close(next)
	var running sync.WaitGroup
	for worker := range errs {
		running.Go(func() {
			for i := range next {
				if errs[worker] == nil {
					out[i], errs[worker] = r.get(ctx, "/nacos/v1/ns/instance/list", url.Values{"serviceName": {list[i].name}, "groupName": {list[i].group}, "healthyOnly": {"false"}})
				}
			}
		})
	}
	running.Wait()
	return out, errors.Join(errs...)
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
