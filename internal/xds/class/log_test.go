package class_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestLogOfOldEnvoy: an Envoy refuses all listeners if the access log has an operator that it does not know, so it gets
// the default format. The version of Envoy distinguishes classes only while the format has such an operator.
func TestLogOfOldEnvoy(t *testing.T) {
	for _, c := range []struct {
		format string
		old    bool
	}{
		{`"%PROTOCOL%"`, false},
		{`"%UPSTREAM_TLS_GROUP% %PROTOCOL%"`, true},
		{`'{"a": ["%UPSTREAM_TLS_GROUP%"]}', accessLogEncoding: JSON`, true},
	} {
		w := meshtest.New(t)
		m, problems := api.DecodeMesh("mesh.yaml", []byte("{accessLogFile: /dev/stdout, accessLogFormat: "+c.format+"}"))
		if api.Failed(problems) || (len(problems) > 0) != c.old {
			t.Fatal(problems)
		}
		b := w.Batch()
		b.Mesh = m
		w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
		w.Apply(plainService(0, `["*"]`))
		logs := func(minor uint32) (of proxy.Class, custom bool) {
			p := *meshtest.Node(t, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", "")
			p.Envoy = minor
			of = w.Connect(&p)
			text := meshtest.Print(t, w.State(of), func(typ resource.Type, _ string) bool { return typ.String() == "LDS" })
			if !strings.Contains(text, "/dev/stdout") {
				t.Errorf("%s: Envoy 1.%d does not log", c.format, minor)
			}
			return of, strings.Contains(text, "UPSTREAM_TLS_GROUP")
		}
		silent, _ := logs(0)
		old, oldCustom := logs(38)
		recent, recentCustom := logs(39)
		if oldCustom || recentCustom != c.old {
			t.Errorf("%s: 1.38 logs so: %v, 1.39 logs so: %v", c.format, oldCustom, recentCustom)
		}
		if (old != recent) != c.old || silent != recent {
			t.Errorf("%s: the classes are %v, %v and %v", c.format, silent, old, recent)
		}
	}
}
