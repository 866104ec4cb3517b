package zookeeper

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source/dubbo"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

// role is what a node is for us.
type role uint8

// The roles of nodes.
const (
	interfaces role = iota // a root of interfaces: its children are interfaces
	providers              // IFACE/providers: its children are URLs
	apps                   // a root of applications: its children are applications
	members                // APP: its children are instances
	member                 // APP/ID: its data is an instance
	metadata               // metadata/APP/REVISION: its data lists interfaces
)

// node is a node that is read and watched.
type node struct {
	role role
	path string
	// root is the root that it is below, unit the path of the interface or application that it belongs to.
	root, unit string
}

// content is the content of a node that was read.
type content struct {
	exists   bool
	children []string
	data     []byte
	denied   bool
}

// contribution is what an interface or application adds to a service.
type contribution struct {
	service   registries.Service
	instances []registries.Instance
}

// mirror is all that was read: the nodes, and their parts of services.
type mirror struct {
	entry    registries.Entry
	nodes    map[string]node
	contents map[string]content
	units    map[string]map[string]*contribution // unit, then key of the service
	byKey    map[string]map[string]bool          // the units that add to a service
	denied   map[string]bool                     // paths that may not be read
}

func newMirror(e registries.Entry) *mirror {
	return &mirror{
		entry: e, nodes: map[string]node{}, contents: map[string]content{}, units: map[string]map[string]*contribution{}, byKey: map[string]map[string]bool{},
		denied: map[string]bool{},
	}
}

// inherit takes what another mirror has read, for nodes that may not be read any more.
func (m *mirror) inherit(was *mirror) {
	for at, n := range was.nodes {
		is := was.contents[at]
		if n.role != providers {
			is.children = nil // they are found again
		}
		m.contents[at] = is
	}
}

// roots are the nodes that are read first.
func (m *mirror) roots() (list []node) {
	for _, root := range m.entry.ZKDubboPath {
		root = "/" + strings.Trim(root, "/")
		list = append(list, m.add(node{role: interfaces, path: root, root: root}))
	}
	for _, root := range m.entry.ZKServicesPath {
		root = "/" + strings.Trim(root, "/")
		list = append(list, m.add(node{role: apps, path: root, root: root}))
	}
	return list
}

func (m *mirror) add(n node) node {
	m.nodes[n.path] = n
	return n
}

// put takes the content of a node that was read. It returns the nodes that must be read then. touched collects the units that change.
func (m *mirror) put(n node, is content, touched map[string]bool) (next []node) {
	was := m.contents[n.path]
	if delete(m.denied, n.path); is.denied {
		m.denied[n.path] = true
		if n.unit != "" {
			touched[n.unit] = true
		}
		return nil // the last content stays
	}
	m.contents[n.path] = is
	switch n.role {
	case interfaces, apps, members:
		for _, child := range gone(was.children, is.children) {
			m.forget(m.below(n, child), touched)
		}
		for _, child := range gone(is.children, was.children) {
			if below, ok := m.wanted(n, child); ok {
				next = append(next, m.add(below))
			}
		}
		if n.role == members {
			touched[n.unit] = true
		}
	case metadata: // all instances of the revision
		touched[n.unit] = true
	case providers:
		touched[n.unit] = true
	case member:
		touched[n.unit] = true
		if to, ok := m.revision(n, is); ok && m.nodes[to.path] == (node{}) {
			next = append(next, m.add(to))
		}
	}
	return next
}

// gone returns the entries of one list that are not in another.
func gone(was, is []string) (out []string) {
	here := make(map[string]bool, len(is))
	for _, s := range is {
		here[s] = true
	}
	for _, s := range was {
		if !here[s] {
			out = append(out, s)
		}
	}
	return out
}

// below is the node for a child.
func (m *mirror) below(n node, child string) node {
	at := path.Join(n.path, child)
	switch n.role {
	case interfaces:
		return node{role: providers, path: path.Join(at, "providers"), root: n.root, unit: at}
	case apps:
		return node{role: members, path: at, root: n.root, unit: at}
	}
	return node{role: member, path: at, root: n.root, unit: n.unit}
}

// wanted returns the node for a child that is read.
func (m *mirror) wanted(n node, child string) (node, bool) {
	if n.role == interfaces && (child == "config" || child == "metadata" || child == "mapping") {
		return node{}, false
	}
	if n.role != members && !m.entry.Active(child) {
		return node{}, false
	}
	return m.below(n, child), true
}

// revision is the node with the metadata of an instance of an application.
func (m *mirror) revision(n node, is content) (node, bool) {
	r, err := parseApplication("", is.data)
	if err != nil || r.revision == "" || len(m.entry.ZKDubboPath) == 0 || strings.Contains(r.revision, "/") {
		return node{}, false
	}
	root := "/" + strings.Trim(m.entry.ZKDubboPath[0], "/")
	return node{role: metadata, path: path.Join(root, "metadata", path.Base(n.unit), r.revision), root: n.root, unit: n.unit}, true
}

// forget drops a node and the nodes below it.
func (m *mirror) forget(n node, touched map[string]bool) {
	for _, child := range m.contents[n.path].children {
		if n.role == members {
			m.forget(m.below(n, child), touched)
		}
	}
	delete(m.nodes, n.path)
	delete(m.contents, n.path)
	delete(m.denied, n.path)
	touched[n.unit] = true
}

// services builds the services to which units add, before or after they changed.
func (m *mirror) services(touched map[string]bool) registries.Services {
	keys := map[string]bool{}
	for unit := range touched {
		for k := range m.units[unit] {
			keys[k] = true
			delete(m.byKey[k], unit)
		}
		is := m.build(unit)
		m.units[unit] = is
		for k := range is {
			keys[k] = true
			if m.byKey[k] == nil {
				m.byKey[k] = map[string]bool{}
			}
			m.byKey[k][unit] = true
		}
		if len(is) == 0 {
			delete(m.units, unit)
		}
	}
	out := registries.Services{}
	for k := range keys {
		out[k] = m.merge(k)
	}
	return out
}

// merge adds up what units add to a service; nil if none does.
func (m *mirror) merge(k string) *registries.Service {
	var s *registries.Service
	for _, unit := range slices.Sorted(maps.Keys(m.byKey[k])) {
		c := m.units[unit][k]
		if s == nil {
			one := c.service
			s = &one
			s.Instances, s.Unread = slices.Clone(c.instances), slices.Clone(c.service.Unread)
			continue
		}
		s.Instances, s.Unread = append(s.Instances, c.instances...), append(s.Unread, c.service.Unread...)
	}
	if s == nil {
		delete(m.byKey, k)
		return nil
	}
	slices.SortStableFunc(s.Instances, func(a, b registries.Instance) int { return strings.Compare(a.ID, b.ID) })
	return s
}

// build computes what an interface or application adds to services.
func (m *mirror) build(unit string) map[string]*contribution {
	out := map[string]*contribution{}
	if n, ok := m.nodes[path.Join(unit, "providers")]; ok && n.role == providers {
		m.buildInterface(n, out)
	}
	if n, ok := m.nodes[unit]; ok && n.role == members {
		m.buildApplication(n, out)
	}
	return out
}

func (m *mirror) buildInterface(n node, out map[string]*contribution) {
	name := path.Base(n.unit)
	for _, child := range m.contents[n.path].children {
		p, ok, err := parseProvider(child)
		switch {
		case err != nil:
			i := mesh.DubboInterface{Interface: name}
			contribute(out, dubbo.Key(i), dubbo.Service(i)).unread(child, err)
		case ok:
			i := dubbo.Interface(name, p.Params)
			c := contribute(out, dubbo.Key(i), dubbo.Service(i))
			c.instances = append(c.instances, p.Instance())
		}
	}
}

func (m *mirror) buildApplication(n node, out map[string]*contribution) {
	name := path.Base(n.unit)
	s := registries.Service{Listed: name, HostName: name, Suffix: strings.ReplaceAll(strings.Trim(n.root, "/"), "/", "-") + ".zookeeper"}
	for _, id := range m.contents[n.path].children {
		at, ok := m.contents[path.Join(n.path, id)]
		if !ok || !at.exists {
			continue // it has vanished since it was listed
		}
		c := contribute(out, "app:"+n.unit, s)
		r, err := parseApplication(id, at.data)
		if err != nil {
			c.unread(path.Join(n.path, id), err)
			continue
		}
		c.instances = append(c.instances, r.instance)
		m.buildExported(n, r, out, c)
	}
}

// buildExported adds the interfaces in the metadata of an instance of an application.
func (m *mirror) buildExported(n node, r registered, out map[string]*contribution, app *contribution) {
	if r.revision == "" || len(m.entry.ZKDubboPath) == 0 {
		return
	}
	at := path.Join("/"+strings.Trim(m.entry.ZKDubboPath[0], "/"), "metadata", path.Base(n.unit), r.revision)
	is, ok := m.contents[at]
	if !ok || !is.exists {
		return
	}
	list, err := parseMetadata(is.data)
	if err != nil {
		app.unread(at, err)
		return
	}
	for _, e := range list {
		if !m.entry.Active(e.Name) {
			continue
		}
		i, in := e.at(r.instance)
		c := contribute(out, dubbo.Key(i), dubbo.Service(i))
		c.instances = append(c.instances, in)
	}
}

func contribute(out map[string]*contribution, k string, s registries.Service) *contribution {
	if out[k] == nil {
		out[k] = &contribution{service: s}
	}
	return out[k]
}

// unread notes a part that cannot be read.
func (c *contribution) unread(place string, err error) {
	c.service.Unread = append(c.service.Unread, registries.Remark{Place: place, Reason: err.Error()})
}

// remarks are the nodes that may not be read.
func (m *mirror) remarks() (list []registries.Remark) {
	for _, at := range slices.Sorted(maps.Keys(m.denied)) {
		list = append(list, registries.Remark{Place: at, Reason: fmt.Sprintf("the node may not be read; grant the user in zkDigest the permission to read %s", at)})
	}
	return list
}
