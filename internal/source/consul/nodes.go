package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// More services than maxWatches, on few nodes, are followed by the nodes: the server answers two blocking queries for each node, one for its checks and one
// for its services, when something changes there. An answer is as long as the node has instances, and not as long as all nodes have, and a change of an
// instance without a change of its checks shows, too.

const (
	// maxNodes is how many nodes are followed like this. With hotWatches and the queries for names, so many connections are in use nearly all the time.
	maxNodes = 32
	// nodesPath lists the names of nodes.
	nodesPath = "/v1/catalog/nodes"
	// nodeEvery and nodeBurst bound the answers about all nodes, which are long.
	nodeEvery = 50 * time.Millisecond
	nodeBurst = 16
	// An answer that says nothing new, because the services that change often have blocking queries of their own, makes a pause before the next one about that
	// node: firstPause, and twice as long each time, up to longestPause.
	firstPause   = 250 * time.Millisecond
	longestPause = 4 * time.Second
)

// marks are checksums by service, of what one answer about a node says of them. The name "" is the node itself.
type marks map[string]uint64

// aspect is one of the two kinds of answers about a node.
type aspect struct {
	path   string // before the name of the node
	decode func([]byte) (marks, error)
}

// empty reports whether an answer says nothing of a node.
func (k aspect) empty(a answer) bool {
	m, err := k.decode(a.body)
	return err == nil && len(m) == 0
}

var aspects = [...]aspect{{"/v1/health/node/", checksOfNode}, {onNodePath, servicesOfNode}}

// onNodePath lists the services of a node.
const onNodePath = "/v1/catalog/node-services/"

func checksOfNode(body []byte) (marks, error) {
	c, err := decodeChecks(body)
	if err != nil {
		return nil, err
	}
	m := marks(c.services)
	for _, n := range c.nodes {
		m[""] += n
	}
	return m, nil
}

func servicesOfNode(body []byte) (marks, error) {
	m := marks{}
	var id, name, index []byte
	s := scan(body)
	member := func(field []byte) (err error) {
		switch string(field) {
		case `"ID"`:
			id, err = s.text(id)
		case `"Service"`:
			name, err = s.text(name)
		case `"ModifyIndex"`:
			index, err = s.raw(index)
		default:
			err = s.SkipValue()
		}
		return err
	}
	err := s.object(func(field []byte) error {
		if string(field) != `"Services"` {
			return s.SkipValue()
		}
		return s.list(func() error {
			id, name, index = id[:0], name[:0], index[:0]
			err := s.object(member)
			m[string(name)] += hash(id, index) // a sum does not depend on the order
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("the services of a node: %w", err)
	}
	return m, nil
}

// nodes are the names of nodes, and the index of that list.
type nodes struct {
	names []string
	index uint64
}

func decodeNodes(a answer) (nodes, error) {
	var all []struct{ Node string }
	if err := json.Unmarshal(a.body, &all); err != nil {
		return nodes{}, fmt.Errorf("%s: %w", nodesPath, err)
	}
	n := nodes{index: a.index}
	for _, one := range all {
		n.names = append(n.names, one.Node)
	}
	slices.Sort(n.names)
	return n, nil
}

// nodeState is one aspect of a node at an index.
type nodeState struct {
	index uint64
	marks marks
}

// nodeStates reads the nodes with both of their aspects. few is false if there are more than maxNodes of them.
func (f *following) nodeStates(ctx context.Context) (all nodes, states map[string][]nodeState, few bool, err error) {
	a, err := f.get(ctx, nodesPath, 0, 0, false)
	if err == nil {
		all, err = decodeNodes(a)
	}
	if err != nil || len(all.names) > maxNodes {
		return all, nil, false, err
	}
	states = map[string][]nodeState{}
	for _, node := range all.names {
		for _, kind := range aspects {
			s, err := f.nodeState(ctx, kind, node)
			if err != nil {
				return all, nil, false, err
			}
			states[node] = append(states[node], s)
		}
	}
	return all, states, true, nil
}

func (f *following) nodeState(ctx context.Context, kind aspect, node string) (nodeState, error) {
	a, err := f.get(ctx, kind.path+url.PathEscape(node), 0, 0, false)
	if err != nil {
		return nodeState{}, err
	}
	m, err := kind.decode(a.body)
	return nodeState{a.index, m}, err
}

// followNodes follows the list of nodes, and each node on it.
func (f *following) followNodes(ctx context.Context, all nodes, states map[string][]nodeState) {
	stops := map[string]context.CancelFunc{}
	limit := rate.NewLimiter(rate.Every(nodeEvery), nodeBurst)
	begin := func(node string, seen []nodeState) {
		on, stop := context.WithCancel(ctx)
		stops[node] = stop
		for i, kind := range aspects {
			f.running.Go(func() { f.followNode(ctx, on, nodeQuery{kind, node, limit}, seen[i]) })
		}
	}
	for _, node := range all.names {
		begin(node, states[node])
	}
	for {
		a, err := f.follow(ctx, nodesPath, all.index, f.entry.ConsulWait)
		if err == nil {
			all, err = decodeNodes(a)
		}
		if err == nil && len(all.names) > maxNodes {
			err = errMode
		}
		if err != nil {
			f.end(ctx, err)
			break
		}
		for _, node := range all.names {
			if stops[node] == nil {
				begin(node, make([]nodeState, len(aspects))) // all services of it are new
			}
		}
		for node, stop := range stops {
			if _, listed := slices.BinarySearch(all.names, node); !listed {
				stop()
				delete(stops, node)
			}
		}
	}
	for _, stop := range stops {
		stop()
	}
}

// nodeQuery is one of the two blocking queries for a node.
type nodeQuery struct {
	aspect
	node  string
	limit *rate.Limiter
}

// followNode reads the services of a node that change, until ctx ends. When on ends, the node is gone: it is read for a last time.
func (f *following) followNode(ctx, on context.Context, q nodeQuery, seen nodeState) {
	path := q.path + url.PathEscape(q.node)
	var pause time.Duration
	for last := false; !last; {
		asked := time.Now()
		a, err := f.follow(on, path, seen.index, f.entry.ConsulWait)
		if errors.Is(err, errFell) && q.empty(a) && !registries.Pause(on, patience) {
			err = nil // a node that is gone has no index any more; the list of nodes says so
		}
		if on.Err() != nil {
			last = true
			a, err = f.get(ctx, path, 0, 0, false)
		}
		if err == nil && a.index == seen.index && !last {
			continue
		}
		if time.Since(asked) > longestPause {
			pause = 0
		}
		is, news := nodeState{index: a.index}, false
		if err == nil {
			is.marks, err = q.decode(a.body)
		}
		if err == nil {
			news, err = f.readOn(ctx, q.node, differences(seen.marks, is.marks))
		}
		if err != nil {
			f.end(ctx, err)
			return
		}
		seen = is
		if pause = min(max(2*pause, firstPause), longestPause); news {
			pause = 0
		}
		if registries.Pause(on, pause) {
			_ = q.limit.Wait(on) // it fails if the node is gone, which is read at once
		}
	}
}

// readOn reads services of a node whose marks differ, and passes them on. All are read if the node itself differs, such as in its health. news is set if a
// service was not passed on like that already.
func (f *following) readOn(ctx context.Context, node string, names []string) (news bool, err error) {
	if len(names) > 0 && names[0] == "" {
		s, err := f.nodeState(ctx, aspects[1], node)
		if err != nil {
			return false, err
		}
		names = slices.AppendSeq(names, maps.Keys(s.marks))
	}
	read, err := f.readAll(ctx, f.followed(names), parallel)
	if err != nil {
		return false, err
	}
	read = slices.DeleteFunc(read, func(u update) bool { return f.same(u.name, u.sum) && !u.filtered })
	f.send(ctx, read)
	return len(read) > 0, nil
}

// followed are those names, in order, whose services are read at all.
func (f *following) followed(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" || name == own || !f.entry.Active(name) })
}
