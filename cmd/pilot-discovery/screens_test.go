package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/run"
)

// misspelt is a VirtualService whose destination does not exist; lines and columns of its fields count.
const misspelt = `# a comment
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - route:
    - destination:
        host: revews
`

// TestScreens checks the output that an operator sees during one run of a control plane: the line of a field, levels of the log at run
// time, request, and remarks about variables.
func TestScreens(t *testing.T) {
	t.Setenv("PILOT_ENABLE_AMBIENT", "true")
	t.Setenv("PILOT_ENABLE_GATEWAY_API", "true") // the usual value
	c := start(t, "--log_output_level=default:info,proxies:warn,nobody:debug")
	c.ready()
	c.write("web.yaml", misspelt)
	const found = `"line":10,"column":9,"field":"spec.http[0].route[0].destination.host","level":"error","reason":` +
		`"there is no service \"revews.shop.svc.cluster.local\": traffic to it fails; did you mean reviews.shop.svc.cluster.local?","code":"route-no-host"`
	c.until("/debug/problemz", func(_ int, body string) bool { return strings.Contains(body, found) })
	c.until("/ready", func(int, string) bool { return strings.Contains(c.said(), "line=10 column=9") })
	c.write("web.yaml", "\n\n"+misspelt) // the object moves, and nothing else changes
	c.until("/debug/problemz", func(_ int, body string) bool { return strings.Contains(body, strings.Replace(found, "10", "12", 1)) })

	for _, line := range []struct {
		args       []string
		code       int
		out, error string
	}{
		{[]string{"GET", "/debug/problemz?level=error"}, run.ExitDone, `"code":"route-no-host"`, ""},
		{[]string{"get", "debug/problemz?level=error&pretty"}, run.ExitDone, "\n    \"code\": \"route-no-host\"", ""},
		{[]string{"GET", "/debug/logging"}, run.ExitDone, "\"part\": \"proxies\",\n    \"level\": \"warn\"", ""},
		{[]string{"PUT", "/debug/logging", "proxies:debug"}, run.ExitDone, "\"part\": \"proxies\",\n    \"level\": \"debug\"", ""},
		{[]string{"POST", "/debug/logging?level=all:none"}, run.ExitDone, "\"part\": \"core\",\n    \"level\": \"none\"", ""},
		{[]string{"PUT", "/debug/logging", "proxis:debug"}, run.ExitFailed, "", `400 Bad Request: there is no part "proxis"; did you mean proxies?`},
		{[]string{"GET", "/debug/nosuch"}, run.ExitFailed, "", "404 Not Found: there is no page /debug/nosuch; /debug lists them"},
		{[]string{"GET"}, run.ExitUsage, "", "accepts between 2 and 3 arg"},
		{[]string{"GET", "/ready", "--address=:"}, run.ExitUsage, "", "is not an address"},
		{[]string{"GET", "/ready", "--address=127.0.0.1:1"}, run.ExitFailed, "", "is it running on this host"},
	} {
		args := append([]string{"request", "--address=" + c.http}, line.args...)
		cmd := root(args)
		var out, err bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&err)
		if code := run.Command(context.Background(), cmd, args); code != line.code || !strings.Contains(out.String(), line.out) || !strings.Contains(err.String(), line.error) {
			t.Errorf("request %q: exit %d, %s, %s", line.args, code, &out, &err)
		}
	}
	if code := c.stop(); code != run.ExitDone {
		t.Errorf("exit %d", code)
	}
	log := c.said()
	for _, want := range []string{
		`msg=environment remark="PILOT_ENABLE_AMBIENT=true has no effect: there is no ambient mode`,
		`remark="--log_output_level: there is no part \"nobody\"; the parts are config, proxies,`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "PILOT_ENABLE_GATEWAY_API") || strings.Contains(log, "msg=stopped") {
		t.Errorf("the log says what it should not:\n%s", log)
	}
	http.DefaultClient.CloseIdleConnections()
}
