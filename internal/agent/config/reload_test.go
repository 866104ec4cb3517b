package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReload: flags and environment stay, files are read again, and settings that the agent itself uses stay as they were.
func TestReload(t *testing.T) {
	s := mustLoad(t, map[string]string{annotationsFile: `proxy.istio.io/config="drainDuration: 3s"`, labelsFile: `app="web"`}, nil, "--hotRestart", "--concurrency=3", "--proxyLogLevel=info,upstream:debug", "--vklog=1")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.dir, annotationsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(s.Files(), filepath.Join(s.dir, annotationsFile)) {
		t.Errorf("files: %v", s.Files())
	}
	write(`a="b"
proxy.istio.io/config="{drainDuration: 4s, discoveryAddress: 10.9.9.9:1, proxyAdminPort: 7}"`)
	next, err := s.Reload()
	if err != nil {
		t.Fatal(err)
	}
	p := next.Proxy
	if p.DrainDuration.AsDuration() != 4*time.Second || p.DiscoveryAddress != s.Proxy.DiscoveryAddress || p.ProxyAdminPort != 15000 || p.Concurrency.GetValue() != 3 ||
		!next.HotRestart || next.EnvoyLogLevel != s.EnvoyLogLevel || next.EnvoyComponentLogLevel != "misc:error,upstream:debug" || next.Labels["app"] != "web" || next.Annotations["a"] != "" {
		t.Errorf("got %v %v %v", p, next.Labels, next.Annotations)
	}
	const changed = " has changed, which takes effect when the agent is started again"
	if want := []string{"discoveryAddress" + changed, "proxyAdminPort" + changed}; !slices.Equal(next.Warnings(), want) {
		t.Errorf("warnings: %q", next.Warnings())
	}
	if again, err := s.Reload(); err != nil || len(again.Warnings()) != 2 || s.Proxy.DrainDuration.AsDuration() != 3*time.Second {
		t.Errorf("%v; reading again has changed the settings of the start: %v", err, s.Proxy)
	}
	write(`proxy.istio.io/config="drainDuration: soon"`)
	if _, err := s.Reload(); err == nil || !strings.Contains(err.Error(), "drainDuration") {
		t.Errorf("%v", err)
	}
}

func TestHotRestartSettings(t *testing.T) {
	if s := mustLoad(t, nil, nil); s.HotRestart || s.ParentShutdown != time.Minute {
		t.Error("hot restarts are not the default")
	}
	if s := mustLoad(t, nil, []string{"HOT_RESTART=true"}); !s.HotRestart {
		t.Error("HOT_RESTART has no effect")
	}
	if s := mustLoad(t, nil, []string{"HOT_RESTART=true"}, "--hotRestart=false"); s.HotRestart {
		t.Error("the flag does not go before the environment")
	}
	_, err := load(t, nil, []string{"PROXY_CONFIG=discoveryAddress: 10.0.0.1:15010"}, "--hotRestart", "--parentShutdownDuration=45s")
	if err == nil || !strings.Contains(err.Error(), "45s is not longer than the drain duration, 45s") {
		t.Errorf("%v", err)
	}
}
