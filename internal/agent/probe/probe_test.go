package probe

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	probes, remarks, err := Parse(`{
		"/app-health/a/readyz": {"httpGet": {"path": "x?y=1", "port": 80, "scheme": "HTTPS", "host": "other.com", "httpHeaders": [{"name": "a", "value": "b"}]}, "timeoutSeconds": 3},
		"/app-health/a/livez": {"tcpSocket": {"port": "81", "host": "10.0.0.1"}},
		"/app-health/b/startupz": {"grpc": {"port": 82, "service": "s"}, "periodSeconds": 9},
		"/app-lifecycle/b/prestopz": {"httpGet": {"port": 83}}
	}`, []string{"10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	ready, live, start, stop := probes["/app-health/a/readyz"], probes["/app-health/a/livez"], probes["/app-health/b/startupz"], probes["/app-lifecycle/b/prestopz"]
	if ready.HTTP.Path != "/x?y=1" || ready.HTTP.Scheme != "https" || ready.timeout().Seconds() != 3 || ready.destination([]string{"10.0.0.1"}, "d") != "d" {
		t.Errorf("readiness: %+v", ready.HTTP)
	}
	if live.TCP.Port != 81 || live.timeout() != defaultTimeout || live.destination([]string{"10.0.0.1"}, "d") != "10.0.0.1" {
		t.Errorf("liveness: %+v", live.TCP)
	}
	if start.GRPC.Service != "s" || stop.HTTP.Scheme != "http" || stop.timeout() != hookTimeout {
		t.Errorf("start %+v, stop %+v", start.GRPC, stop)
	}
	if want := []string{`/app-health/a/readyz: the host "other.com" has no effect: only the workload itself is called`}; !slices.Equal(remarks, want) {
		t.Errorf("remarks %q", remarks)
	}
}

// TestParseRefuses: the error names the place of the mistake and the reason.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                      "it is not a JSON object of probes",
		`{"/x":{}}`:               "/x: the path is not one of",
		`{"/app-health/a/readyz"`: "it is not a JSON object of probes",
		`{"/app-health/a/b/livez": {"tcpSocket": {"port": 1}}}`:                                           "the path is not one of",
		`{"/app-health/a/livez":{}}`:                                                                      "it has 0 of httpGet, tcpSocket and grpc",
		`{"/app-health/a/livez":{"tcpSocket":{"port":1},"grpc":{"port":1}}}`:                              "it has 2 of httpGet, tcpSocket and grpc",
		`{"/app-health/a/livez":{"httpGet":{"port":"web"}}}`:                                              `the port "web" is not a number`,
		`{"/app-health/a/livez":{"httpGet":{"port":65536}}}`:                                              `the port 65536 is not a number`,
		`{"/app-health/a/livez":{"httpGet":{}}}`:                                                          "the port is missing",
		`{"/app-health/a/livez":{"httpGet":{"port":1,"scheme":"ftp"}}}`:                                   `"ftp" is neither HTTP nor HTTPS`,
		`{"/app-health/a/livez":{"httpGet":{"port":1,"path":"/%zz"}}}`:                                    "httpGet.path",
		`{"/app-health/a/livez":{"httpGet":{"port":1,"httpHeaders":[{"name":"a","value":"b\r\nc: d"}]}}}`: "is not a header",
		`{"/app-health/a/livez":{"httpGet":{"port":1},"timeoutSeconds":-1},"/y":{"httpGet":{"port":1}}}`:  "timeoutSeconds: -1 is negative\n/y: the path",
	} {
		if _, _, err := Parse(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

// FuzzParse: an accepted probe can be run, and calls the workload only.
func FuzzParse(f *testing.F) {
	f.Add(`{"/app-health/a/readyz":{"httpGet":{"path":"/x","port":80,"host":"a.com"}}}`)
	f.Add(`{"/app-health/a/livez":{"tcpSocket":{"port":"1"}},"/app-lifecycle/a/prestopz":{"grpc":{"port":2}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		probes, _, err := Parse(text, []string{"10.0.0.1"})
		if err != nil {
			return
		}
		for path, p := range probes {
			if !pathForm.MatchString(path) || p.timeout() <= 0 {
				t.Errorf("%q: %+v", path, p)
			}
			if d := p.destination([]string{"10.0.0.1"}, "10.0.0.1"); !isOwn(d, []string{"10.0.0.1"}) {
				t.Errorf("%q calls %q", path, d)
			}
			if p.HTTP != nil && !strings.HasPrefix(p.HTTP.Path, "/") {
				t.Errorf("%q has the path %q", path, p.HTTP.Path)
			}
		}
	})
}
