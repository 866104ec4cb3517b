// Package summary describes one pod or service on one screen: services and ports, rules, policies, mutual TLS, gateways
// and problems.
//
// It owns the form and the wording of a summary, and computes nothing: all comes from pages of the control plane, which answer by the queries that
// proxies are configured by. The package starts no goroutines.
package summary

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/explain/entrance"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
)

// maxAsked bounds how many hosts of gateways are asked about.
const maxAsked = 50

// Get reads a page of a control plane into v.
type Get func(ctx context.Context, page string, query url.Values, v any) error

// Summary is the summary of a pod or service.
type Summary struct {
	Kind      string `json:"kind"` // pod or service
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Proxy is the proxy of the pod.
	Proxy *Proxy `json:"proxy,omitempty"`
	// Viewer is the proxy as whose client services are described; empty if none is connected.
	Viewer   string    `json:"viewer,omitempty"`
	Services []Service `json:"services"`
	// Problems are the problems of the objects in the summary, and what the proxy does not use.
	Problems []string `json:"problems"`
}

// Proxy is the state of the proxy of a pod.
type Proxy struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Envoy   string `json:"envoy,omitempty"`
	// States are by short name of the resource type.
	States map[string]admin.State `json:"states"`
	// Sidecar limits what the proxy sees.
	Sidecar *reply.Ref `json:"sidecar,omitempty"`
}

// Service is a host.
type Service struct {
	Host string `json:"host"`
	// Endpoints is the number of endpoints, and Connected how many of them have a connected proxy.
	Endpoints int    `json:"endpoints"`
	Connected int    `json:"connected"`
	Ports     []Port `json:"ports"`
	// Rules are the objects that the host is made of for the viewer, and related objects without effect.
	Rules []reply.Source `json:"rules"`
	// Gateways lead to it.
	Gateways []Gateway `json:"gateways"`
}

// Port is a port of a service, and of a workload behind it.
type Port struct {
	Number   uint32 `json:"number"`
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	// Workload is the name of the proxy of the workload that Target, Mode and Policies are about; empty if none is connected.
	Workload string         `json:"workload,omitempty"`
	Target   uint32         `json:"target_port,omitempty"`
	Mode     string         `json:"mtls_mode,omitempty"`
	Policies []reply.Policy `json:"policies,omitempty"`
	// Destinations are where requests of the viewer go.
	Destinations []reply.Destination `json:"destinations,omitempty"`
}

// Gateway is a rule of a gateway that leads to a service.
type Gateway struct {
	Host  string    `json:"host"`
	Port  uint32    `json:"port"`
	Match string    `json:"match,omitempty"`
	Owner reply.Ref `json:"gateway"`
	Rule  reply.Ref `json:"rule"`
}

// asker collects a summary.
type asker struct {
	ctx     context.Context
	get     Get
	out     *Summary
	proxies []admin.Sync
	routes  []entered
}

// entered is a rule of a gateway with its destinations.
type entered struct {
	Gateway
	to []string
}

// Of returns the summary of a pod or service, by its name and namespace.
func Of(ctx context.Context, get Get, kind, namespace, name string) (*Summary, error) {
	a := &asker{ctx: ctx, get: get, out: &Summary{Kind: kind, Namespace: namespace, Name: name, Services: []Service{}, Problems: []string{}}}
	if err := get(ctx, "/debug/syncz", url.Values{}, &a.proxies); err != nil {
		return nil, err
	}
	var err error
	if kind == "pod" {
		err = a.pod()
	} else {
		err = a.service()
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(a.out.Problems)
	a.out.Problems = slices.Compact(a.out.Problems)
	return a.out, nil
}

// pod describes a pod by its proxy.
func (a *asker) pod() error {
	full := a.out.Name + "." + a.out.Namespace
	at := slices.IndexFunc(a.proxies, func(s admin.Sync) bool { return s.Proxy == full })
	if at < 0 {
		return fmt.Errorf("no proxy %s is connected to the control plane; is the namespace right, has the pod a proxy (pilotctl explain injection), and is it of this control plane? "+
			"pilotctl proxy-status lists the proxies", full)
	}
	s := a.proxies[at]
	a.out.Viewer, a.out.Proxy = s.Proxy, &Proxy{Name: s.Proxy, Version: s.Version, Envoy: s.Envoy, States: map[string]admin.State{}}
	for kind, now := range s.Types {
		a.out.Proxy.States[kind] = now.State
		if now.LastError != "" {
			a.problem("error: the proxy rejected %s: %s", kind, now.LastError)
		}
		if unused := now.Unused(); unused != "" {
			a.problem("warning: %s: the proxy does not use yet: %s", kind, unused)
		}
	}
	instances := map[string][]why.Instance{}
	if err := a.get(a.ctx, "/debug/instancesz", url.Values{"proxyID": {s.Connection}}, &instances); err != nil {
		return err
	}
	var hosts []string
	for _, one := range instances[s.Connection] {
		if !slices.Contains(hosts, one.Host) {
			hosts = append(hosts, one.Host)
		}
	}
	if len(hosts) == 0 {
		a.problem("warning: no service selects the pod: its proxy knows no port of the workload")
	}
	slices.Sort(hosts)
	for _, host := range hosts {
		if err := a.host(host, instances[s.Connection]); err != nil {
			return err
		}
	}
	return nil
}

// service describes a service as a proxy sees it: one of its namespace, or else any.
func (a *asker) service() error {
	var declared []admin.Service
	if err := a.get(a.ctx, "/debug/registryz", url.Values{"namespace": {a.out.Namespace}}, &declared); err != nil {
		return err
	}
	var hosts, all []string
	for _, s := range declared {
		for _, host := range s.Hosts {
			all = append(all, host)
			if host == a.out.Name || s.Name == a.out.Name || strings.HasPrefix(host, a.out.Name+"."+a.out.Namespace+".") {
				hosts = append(hosts, host)
			}
		}
	}
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); len(hosts) == 0 {
		slices.Sort(all)
		all = slices.Compact(all)
		return fmt.Errorf("no service %s is declared in the namespace %s; there are: %s", a.out.Name, a.out.Namespace, cmp.Or(strings.Join(all[:min(len(all), 10)], ", "), "none"))
	}
	for _, s := range a.proxies {
		inside := strings.HasSuffix(s.Proxy, "."+a.out.Namespace)
		if s.Type != "router" && (a.out.Viewer == "" || inside) {
			a.out.Viewer = s.Proxy
			if inside {
				break
			}
		}
	}
	for _, host := range hosts {
		if err := a.host(host, nil); err != nil {
			return err
		}
	}
	return nil
}

// host adds a service. own are the ports that the pod serves, if the summary is of a pod.
func (a *asker) host(host string, own []why.Instance) error {
	s := Service{Host: host, Ports: []Port{}, Rules: []reply.Source{}, Gateways: []Gateway{}}
	var declared []admin.Service
	if err := a.get(a.ctx, "/debug/endpointz", url.Values{"host": {host}}, &declared); err != nil {
		return err
	}
	workload, target := a.endpoints(&s, declared)
	if own != nil {
		workload = a.out.Proxy.Name
		target = map[string]uint32{}
		for _, one := range own {
			if one.Host == host {
				target[strconv.Itoa(int(one.Port))] = one.TargetPort
			}
		}
	}
	if err := a.viewed(&s, declared); err != nil {
		return err
	}
	for n := range s.Ports {
		p := &s.Ports[n]
		if p.Target = target[strconv.Itoa(int(p.Number))]; workload == "" || p.Target == 0 {
			continue
		}
		if err := a.inbound(p, workload); err != nil {
			return err
		}
	}
	if own == nil && s.Endpoints == 0 {
		a.problem("warning: %s has no endpoints", host)
	}
	if err := a.gateways(&s); err != nil {
		return err
	}
	a.out.Services = append(a.out.Services, s)
	return nil
}

// endpoints counts endpoints. It returns the first connected workload, and its ports by the number of the port of the service.
func (a *asker) endpoints(s *Service, declared []admin.Service) (workload string, target map[string]uint32) {
	target = map[string]uint32{}
	for _, d := range declared {
		for _, e := range d.Endpoints {
			s.Endpoints++
			at := slices.IndexFunc(a.proxies, func(p admin.Sync) bool {
				parts := strings.Split(p.Connection, "~")
				return len(parts) > 1 && parts[1] == e.Address && p.Type != "router"
			})
			if at < 0 {
				continue
			}
			if s.Connected++; workload != "" {
				continue
			}
			workload = a.proxies[at].Proxy
			for _, port := range d.Ports {
				target[strconv.Itoa(int(port.Number))] = cmp.Or(e.Ports[port.Name], port.TargetPort, port.Number)
			}
		}
	}
	return workload, target
}

// viewed adds the ports, destinations and rules of a service for the viewer. Without a viewer, it adds the declared ports.
func (a *asker) viewed(s *Service, declared []admin.Service) error {
	if a.out.Viewer == "" {
		a.problem("info: no sidecar is connected: rules and destinations depend on the client, and are not shown")
		for _, d := range declared {
			for _, p := range d.Ports {
				s.Ports = append(s.Ports, Port{Number: p.Number, Name: p.Name, Protocol: p.Protocol})
			}
		}
		return nil
	}
	var answer reply.Answer
	if err := a.get(a.ctx, "/debug/explain", url.Values{"proxyID": {a.out.Viewer}, "kind": {why.HostKind}, "name": {s.Host}}, &answer); err != nil {
		return err
	}
	if a.out.Proxy != nil {
		a.out.Proxy.Sidecar = answer.Proxy.Sidecar
	}
	for _, p := range answer.Ports {
		s.Ports = append(s.Ports, Port{Number: p.Number, Name: p.Name, Protocol: p.Protocol, Destinations: p.Destinations})
		a.reasons(fmt.Sprintf("%s:%d", s.Host, p.Number), p.Reasons)
	}
	s.Rules = append(s.Rules, answer.Sources...)
	if answer.Verdict != reply.Served && answer.Verdict != reply.NotAsked {
		a.problem("error: %s is %s for %s", s.Host, answer.Verdict, a.out.Viewer)
	}
	a.reasons(s.Host, answer.Reasons)
	a.problems(answer.Problems)
	return nil
}

// inbound adds the mode of mutual TLS and the policies at a port of a workload.
func (a *asker) inbound(p *Port, workload string) error {
	var answer reply.Answer
	query := url.Values{"proxyID": {workload}, "kind": {why.InboundKind}, "name": {strconv.Itoa(int(p.Target))}}
	if err := a.get(a.ctx, "/debug/explain", query, &answer); err != nil {
		return err
	}
	p.Workload, p.Mode, p.Policies = workload, answer.Mode, answer.Policies
	for _, one := range answer.Policies {
		if one.Denies != "" {
			a.problem("error: %s denies what it matches: %s", one.Object.Key(), one.Denies)
		}
	}
	a.problems(answer.Problems)
	return nil
}

// gateways adds the rules of gateways that lead to a service.
func (a *asker) gateways(s *Service) error {
	if a.routes == nil {
		if err := a.entrances(); err != nil {
			return err
		}
	}
	for _, r := range a.routes {
		if slices.Contains(r.to, s.Host) && !slices.Contains(s.Gateways, r.Gateway) {
			s.Gateways = append(s.Gateways, r.Gateway)
		}
	}
	return nil
}

// entrances asks for the rules of the hosts of all gateways.
func (a *asker) entrances() error {
	a.routes = []entered{}
	var list entrance.List
	if err := a.get(a.ctx, "/debug/gatewayz", url.Values{}, &list); err != nil {
		return err
	}
	asked := map[string]bool{}
	for _, claim := range list.Hosts {
		// A pattern is asked about by a host that it covers.
		host := fmt.Sprintf("%s:%d", strings.Replace(claim.Host, "*", "any", 1), claim.Port)
		if claim.Unused != "" || asked[host] {
			continue
		}
		if len(asked) == maxAsked {
			a.problem("info: there are more than %d hosts of gateways; the others are not looked at (pilotctl get hosts lists them)", maxAsked)
			break
		}
		asked[host] = true
		var answer entrance.Answer
		if err := a.get(a.ctx, "/debug/gatewayz", url.Values{"host": {host}}, &answer); err != nil {
			return err
		}
		for _, front := range answer.Fronts {
			for _, server := range front.Servers {
				a.add(claim.Host, server)
			}
		}
	}
	return nil
}

func (a *asker) add(host string, server entrance.Server) {
	for _, r := range server.Routes {
		one := entered{Gateway: Gateway{Host: host, Port: server.Port, Match: r.Match, Owner: server.Object, Rule: r.Object}}
		for _, d := range r.Destinations {
			one.to = append(one.to, d.Host)
		}
		a.routes = append(a.routes, one)
	}
}

func (a *asker) problem(format string, args ...any) {
	a.out.Problems = append(a.out.Problems, fmt.Sprintf(format, args...))
}

func (a *asker) problems(list []reply.Problem) {
	for _, p := range list {
		field := p.Field
		if field != "" {
			field += ": "
		}
		a.problem("%s: %s%s: %s%s", p.Level, place(p.Object), p.Object.Key(), field, p.Reason)
	}
}

func (a *asker) reasons(of string, list []reply.Reason) {
	for _, r := range list {
		text := r.Text
		if r.Object != nil {
			text = fmt.Sprintf("%s%s: %s", place(*r.Object), r.Object.Key(), r.Text)
		}
		if r.Fix != "" {
			text += "; fix: " + r.Fix
		}
		a.problem("info: %s: %s", of, text)
	}
}

// place is the place of an object in a file, before a text.
func place(r reply.Ref) string {
	if at := r.Position(); at != "" {
		return at + ": "
	}
	return ""
}
