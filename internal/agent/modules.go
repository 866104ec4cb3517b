package agent

import (
	"log/slog"
	"path/filepath"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/extension"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/wasm"
	"github.com/pilotmesh/pilot/internal/run"
)

// moduleDir is the name of the directory with WebAssembly modules, beside the bootstrap.
const moduleDir = "wasm"

// fetchModules adds the cache of WebAssembly modules to the group. Modules that the last known good configuration needs stay in it.
func fetchModules(group *run.Group, s *config.Settings, store *lastgood.Store, log *slog.Logger) (*wasm.Cache, error) {
	w := s.Wasm
	cache, err := wasm.Open(wasm.Options{
		Dir: filepath.Join(s.Proxy.GetConfigPath(), moduleDir), Expiry: w.Expiry, Purge: w.Purge, Silence: w.Silence, Retries: w.Retries,
		Insecure: w.Insecure, Blocked: w.Blocked, Log: log,
		InUse: func() (files []string) {
			for _, r := range store.All(extension.URL) {
				files = append(files, extension.File(r.GetResource()))
			}
			return files
		},
	})
	if err != nil {
		return nil, err
	}
	group.Add(run.Actor{Name: "Wasm modules", Run: cache.Run})
	return cache, nil
}
