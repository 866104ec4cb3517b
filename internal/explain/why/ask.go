package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// HostKind is the kind of a question about everything that belongs to a host.
const HostKind = "host"

// Kinds are the kinds of questions.
func Kinds() []string {
	return []string{HostKind, "cluster", "endpoint", "listener", "route", InboundKind}
}

// Mesh is what questions are answered from: the tables and the graph between two commits.
type Mesh struct {
	Tables   *state.Tables
	Graph    *query.Graph
	Queries  *class.Queries
	Problems state.Problems
}

// Question is a question about one proxy.
type Question struct {
	// Connection is the loop's name for the connection of the proxy.
	Connection string
	// State is what the class of the proxy is to have.
	State *resource.State
	// Kind is one of Kinds, or another name of a resource type (cds, clusters).
	Kind string
	// Name is the name of a resource, a host, or host:port for a virtual host.
	Name string
}

// inquiry is a question that is being answered.
type inquiry struct {
	Mesh
	Question
	r          *query.Reader
	proxy      *proxy.Proxy
	class      proxy.Class
	set        scope.Set
	rejections []class.ActiveRejection
	answer     *reply.Answer
}

// Ask answers a question. An error means that the question cannot be answered as it was asked.
func (m Mesh) Ask(q Question) (*reply.Answer, error) {
	i := &inquiry{Mesh: m, Question: q, r: m.Graph.Glance()}
	var ok bool
	if i.proxy, ok = m.Tables.Proxies.Peek(q.Connection); !ok {
		return nil, fmt.Errorf("the proxy has left")
	}
	if i.class, ok = m.Queries.Class.Get(i.r, q.Connection); !ok || q.State == nil {
		return nil, fmt.Errorf("the configuration of %s is being built; ask again in a moment", i.name())
	}
	i.set = scope.SetOf(i.class)
	i.rejections = m.Queries.ActiveRejections(i.r, q.Connection)
	i.answer = &reply.Answer{
		Version: reply.Version, Revision: m.Graph.Revision(), Kind: q.Kind, Name: strings.TrimSpace(q.Name), Verdict: reply.Absent,
		Proxy: reply.Proxy{Name: i.name(), ID: i.proxy.ID, Namespace: i.class.Namespace, Mode: i.class.Mode.String()},
		Lists: reply.Completion{Problems: m.Problems},
	}
	if i.class.Sidecar != (api.Key{}) {
		ref := i.Ref(i.class.Sidecar)
		i.answer.Proxy.Sidecar = &ref
	}
	if i.answer.Name == "" {
		return nil, fmt.Errorf("say which %s", q.Kind)
	}
	if strings.EqualFold(q.Kind, HostKind) {
		i.answer.Kind = HostKind
		i.host()
		return i.answer, nil
	}
	if strings.EqualFold(q.Kind, InboundKind) {
		i.answer.Kind = InboundKind
		return i.answer, i.inbound()
	}
	t, ok := resource.ParseKind(q.Kind)
	if !ok {
		return nil, fmt.Errorf("%q is nothing to ask about; ask about one of %s", q.Kind, strings.Join(Kinds(), ", "))
	}
	i.answer.Kind = t.Kind()
	i.resource(t)
	return i.answer, nil
}

func (i *inquiry) name() string { return i.proxy.Name + "." + i.proxy.Namespace }

// Ref returns an object with its position.
func (m Mesh) Ref(k api.Key) reply.Ref {
	at, _ := m.Tables.Positions.Peek(k)
	return reply.RefTo(k, at)
}

// addReason adds a reason. k is the object that causes it, or zero.
func (i *inquiry) addReason(k api.Key, fix, format string, args ...any) {
	i.answer.Reasons = append(i.answer.Reasons, i.reason(k, fix, format, args...))
}

func (i *inquiry) reason(k api.Key, fix, format string, args ...any) reply.Reason {
	r := reply.Reason{Text: fmt.Sprintf(format, args...), Fix: fix}
	if k != (api.Key{}) {
		ref := i.Ref(k)
		r.Object = &ref
	}
	return r
}

// addSource adds an object in a role. If the answer already has the object in this role, the entries are merged.
func (i *inquiry) addSource(k api.Key, part, unused string, revision store.Revision) {
	at := slices.IndexFunc(i.answer.Sources, func(s reply.Source) bool { return s.Object.Key() == k && s.Role == part })
	if at < 0 {
		i.answer.Sources = append(i.answer.Sources, reply.Source{Object: i.Ref(k), Role: part, Unused: unused, Revision: revision})
		return
	}
	s := &i.answer.Sources[at]
	s.Revision = max(s.Revision, revision)
	if unused == "" {
		s.Unused = ""
	}
}

// addLeaves adds the objects behind the rows that something was made of.
func (i *inquiry) addLeaves(list []*query.Reason) {
	for _, leaf := range list {
		if leaf.Absent {
			continue
		}
		switch key := leaf.Row.(type) {
		case api.Key:
			if leaf.Role != "" {
				i.addSource(key, leaf.Role, "", leaf.Changed)
			}
		case gatewayrows.ServerKey:
			i.addSource(key.Gateway, "servers", "", leaf.Changed)
		case settings.Setting:
			i.addSource(api.Key{Kind: "MeshConfig"}, "mesh settings", "", leaf.Changed)
		}
	}
}
