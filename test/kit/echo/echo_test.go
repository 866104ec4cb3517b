package echo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestReport: a request over HTTP is answered with what the server saw of it.
func TestReport(t *testing.T) {
	l, s := listen(t), NewServers()
	s.HTTP(l, NewHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report := Request(r)
		report.Name = "a"
		Answer(w, report)
	})))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/x?y=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	q.Host = "web"
	q.Header.Set("x-test", "yes")
	back, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Body.Close()
	var r Report
	if err := json.NewDecoder(back.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Name != "a" || r.Protocol != "HTTP/1.1" || r.Method != http.MethodPost || r.Host != "web" || r.Path != "/x?y=1" || r.Headers.Get("x-test") != "yes" ||
		r.Local != l.Addr().String() || !strings.HasPrefix(r.Remote, "127.0.0.1:") || r.TLS != nil {
		t.Errorf("%+v", r)
	}
	if err := s.CloseNow(); err != nil {
		t.Error(err)
	}
}

// TestClose: requests under way may end in their time; a peer that does not want to end is not waited for any longer.
func TestClose(t *testing.T) {
	for name, talk := range map[string]func(net.Conn){"server first": ServerFirst("a", "v1"), "client first": ClientFirst("a", "v1")} {
		for _, patient := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/", patient), func(t *testing.T) {
				l, s := listen(t), NewServers()
				s.TCP(l, talk)
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				in := bufio.NewReader(conn)
				ask(t, conn, in)
				if patient {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					err = s.Close(ctx)
				} else {
					err = s.CloseNow()
				}
				if err != nil {
					t.Error(err)
				}
				if _, err := in.ReadString(0); err == nil {
					t.Error("the connection is still there")
				}
				if len(s.Failed()) > 0 {
					t.Error(<-s.Failed())
				}
			})
		}
	}
}

// ask has the server say its report.
func ask(t *testing.T, conn net.Conn, in *bufio.Reader) {
	t.Helper()
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, `"name":"a","version":"v1"`) {
		t.Fatalf("it says %q (%v)", line, err)
	}
}

// TestFailed: a listener that ends by itself is reported.
func TestFailed(t *testing.T) {
	s := NewServers()
	s.Run("a loop", func() error { return fmt.Errorf("it broke") })
	if err := <-s.Failed(); err == nil || err.Error() != "a loop: it broke" {
		t.Errorf("%v", err)
	}
}
