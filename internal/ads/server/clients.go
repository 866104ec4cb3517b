package server

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// clients counts what each client has on this server, so that none uses up its memory. A client is an identity, however many connections it
// has, or an address if it has shown none.
type clients struct {
	mu  sync.Mutex
	all map[string]*holdings
}

// holdings are what one client has.
type holdings struct {
	// hosts counts virtual hosts on demand, and names the other names of types that are answered per proxy.
	streams, names, hosts int
	// asked says how many streams share each subscription, and bytes is the size of their names together. A shared one counts once.
	asked map[any]int
	bytes int
}

// holder is a stream as the client's count has it.
type holder struct {
	client string
	// names and hosts are what the stream asks for, as holdings count it. gone is set when it has ended.
	names, hosts int
	gone         bool
	// full is set when the stream was refused a host. Only the goroutine that processes the stream's events uses it.
	full bool
	// asked are the subscriptions of the stream.
	asked [resource.Types]subscribed
}

// subscribed is what a stream asks for of one type: what equal streams share, and the size of the names in bytes.
type subscribed struct {
	names any
	bytes int
}

// enter counts a new stream, or refuses it.
func (c *clients) enter(client string, most int) (*holder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.all[client]
	if h == nil {
		h = &holdings{}
		if c.all == nil {
			c.all = map[string]*holdings{}
		}
		c.all[client] = h
	}
	if h.streams >= most {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams at this replica, and the most is %d; close some, give workloads service accounts of their own, or run more replicas", client, h.streams, most)
	}
	h.streams++
	return &holder{client: client}, nil
}

// leave is the end of a stream.
func (c *clients) leave(s *holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.gone = true
	h := c.all[s.client]
	h.names, h.hosts = h.names-s.names, h.hosts-s.hosts
	for t := range s.asked {
		h.replace(&s.asked[t], subscribed{})
	}
	if h.streams--; h.streams == 0 {
		delete(c.all, s.client)
	}
}

// ask counts new names of a stream, less its dropped names. It returns an error if the client asks for too many.
func (c *clients) ask(s *holder, names, most int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone {
		return nil
	}
	h := c.all[s.client]
	if h.names+names > most && names > 0 {
		return status.Errorf(codes.ResourceExhausted, "the streams of %s ask for %d secrets and the like by name at this replica, and the most is %d; ask for fewer, or run more replicas", s.client, h.names+names, most)
	}
	h.names, s.names = h.names+names, s.names+names
	return nil
}

// askHosts counts new virtual hosts on demand of a stream, less its dropped ones. It returns an error if the client asks for too many, and
// counts the dropped ones then, too.
func (c *clients) askHosts(s *holder, asked, dropped, most int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone {
		return nil
	}
	h := c.all[s.client]
	h.hosts, s.hosts = h.hosts-dropped, s.hosts-dropped
	if h.hosts+asked > most && asked > 0 {
		return fmt.Errorf("the sidecars of %s have asked for as many hosts at this replica as they may have (%d): requests for others get 404; give workloads service accounts of their own, or run more replicas", s.client, most)
	}
	h.hosts, s.hosts = h.hosts+asked, s.hosts+asked
	return nil
}

// subscribe counts the names that a stream asks for of the types that are not answered per proxy. It returns an error if all streams of the
// client ask for more than most bytes of them.
func (c *clients) subscribe(s *holder, core *protocol.Core, most int) error {
	var now [resource.Types]subscribed
	for t := range now {
		now[t].names, now[t].bytes = core.Asked(resource.Type(t))
	}
	if now == s.asked { // only the goroutine that processes the stream's events writes it
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone {
		return nil
	}
	h := c.all[s.client]
	before := h.bytes
	for t := range now {
		h.replace(&s.asked[t], now[t])
	}
	if h.bytes > most && h.bytes > before {
		return status.Errorf(codes.ResourceExhausted, "the streams of %s ask for names of %d bytes at this replica, and the most is %d; ask for fewer names, give workloads service accounts of their own, or run more replicas", s.client, h.bytes, most)
	}
	return nil
}

// replace counts another subscription in the place of one.
func (h *holdings) replace(was *subscribed, is subscribed) {
	if is.bytes > 0 {
		if h.asked == nil {
			h.asked = map[any]int{}
		}
		if h.asked[is.names]++; h.asked[is.names] == 1 {
			h.bytes += is.bytes
		}
	}
	if was.bytes > 0 {
		if h.asked[was.names]--; h.asked[was.names] == 0 {
			h.bytes -= was.bytes
			delete(h.asked, was.names)
		}
	}
	*was = is
}
