package admission

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func at(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }

// handshakes opens n connections at once and returns how long each one took.
func handshakes(t *testing.T, p *Pace, from net.Addr, n int) (took []time.Duration, refused int) {
	t.Helper()
	type result struct {
		took time.Duration
		err  error
	}
	results := make(chan result, n)
	begin := time.Now()
	for range n {
		go func() {
			err := p.Wait(from)
			results <- result{time.Since(begin), err}
		}()
	}
	for range n {
		switch r := <-results; {
		case errors.Is(r.err, errPaced):
			refused++
		case r.err != nil:
			t.Fatal(r.err)
		default:
			took = append(took, r.took)
		}
	}
	return took, refused
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pace{}
		evil, good := at("192.0.2.1"), at("192.0.2.2")
		for range freeRefusals {
			p.Refused(evil, time.Now())
		}
		if took, refused := handshakes(t, p, evil, 1); len(took) != 1 || took[0] != 0 || refused > 0 {
			t.Errorf("after %d refusals a connection took %v, want none to wait", freeRefusals, took)
		}
		for range 10 {
			p.Refused(evil, time.Now())
		}
		took, refused := handshakes(t, p, evil, 1000)
		if len(took) < 40 || len(took) > 60 || refused != 1000-len(took) || took[len(took)-1] > maxWait {
			t.Errorf("of 1000 connections %d began, the last after %v, and %d were refused; want one in %v for %v", len(took), took[len(took)-1], refused, refusalEvery, maxWait)
		}
		if took, refused := handshakes(t, p, good, 1000); refused > 0 || took[999] > 0 {
			t.Errorf("connections of another address took %v, and %d were refused", took[999], refused)
		}
		<-time.After(2 * maxWait)
		if took, _ := handshakes(t, p, evil, 1); len(took) != 1 || took[0] != 0 {
			t.Errorf("long after its refusals a connection took %v", took)
		}
	})
}

// TestPaceForgives: refusals without end must not keep an address out for longer than maxWait.
func TestPaceForgives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pace{}
		for range 100_000 {
			p.Refused(at("192.0.2.1"), time.Now())
		}
		if took, refused := handshakes(t, p, at("192.0.2.1"), 1); refused > 0 || took[0] > maxWait {
			t.Errorf("a connection took %v, refused %d", took, refused)
		}
	})
}

// TestPaceOfManyAddresses: the table is bounded, and full of other addresses it delays none that were never refused.
func TestPaceOfManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pace{}
		for i := range 3 * maxAddresses {
			p.Refused(at(net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).String()), time.Now())
		}
		if n := len(p.peers); n > maxAddresses {
			t.Errorf("the table has %d entries", n)
		}
		if took, refused := handshakes(t, p, at("192.0.2.1"), 1); refused > 0 || took[0] > 0 {
			t.Errorf("an address without a refusal waited %v", took)
		}
		for _, peer := range p.peers {
			peer.paid = time.Now().Add(-time.Second) // a search would find it
			break
		}
		p.Refused(at("192.0.2.2"), time.Now())
		if p.peers[network(at("192.0.2.2"))] != nil {
			t.Error("each refusal searches a full table")
		}
		<-time.After(time.Minute)
		p.Refused(at("192.0.2.1"), time.Now())
		if n := len(p.peers); n != 1 {
			t.Errorf("a minute later the table has %d entries, want the new one", n)
		}
	})
}

// TestPaceAfterManyAddresses: a full table has room again as soon as its addresses have paid, after the first flood of addresses and after later ones.
func TestPaceAfterManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pace{}
		for flood := range 3 {
			for i := range maxAddresses {
				p.Refused(at(net.IPv4(10, byte(flood), byte(i>>8), byte(i)).String()), time.Now())
			}
			<-time.After(refusalEvery + 1)
			p.Refused(at(net.IPv4(192, 0, 2, byte(flood)).String()), time.Now())
			if n := len(p.peers); n != 1 {
				t.Errorf("after flood %d, and the time in which its addresses pay, the table has %d entries, want the new one", flood, n)
			}
		}
	})
}

func TestNetwork(t *testing.T) {
	for _, c := range []struct{ a, b string }{{"2001:db8::1", "2001:db8::ffff:2"}, {"::ffff:192.0.2.1", "192.0.2.1"}} {
		if network(at(c.a)) != network(at(c.b)) {
			t.Errorf("%s and %s are two addresses", c.a, c.b)
		}
	}
	if network(at("192.0.2.1")) == network(at("192.0.2.2")) || network(at("2001:db8::1")) == network(at("2001:db8:0:1::1")) {
		t.Error("different addresses are the same")
	}
	if network(&net.UnixAddr{}).IsValid() {
		t.Error("a socket has an address")
	}
}
