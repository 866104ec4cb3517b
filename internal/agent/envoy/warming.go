package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// maxWarming is how many warming resources of one type Envoy is asked to name. Each answer costs Envoy about as much as a description of
// all its resources of the type, so there is no point in names of which nobody reads more than a few.
const maxWarming = 20

// Statistics that tell whether Envoy has received something that it does not use yet.
const (
	warmingClusters  = "cluster_manager.warming_clusters"
	warmingListeners = "listener_manager.total_listeners_warming"
	warmingStats     = `^(server\.(state|hot_restart_epoch)|cluster_manager\.warming_clusters|listener_manager\.total_listeners_warming)$`
)

// Values of server.state in which Envoy does not serve yet.
const (
	preInitializing = 2
	initializing    = 3
)

// ErrUntold reports that Envoy does not tell what it is warming: its bootstrap leaves out the statistics.
var ErrUntold = errors.New("Envoy keeps no statistics about what it is warming")

// Warming is what Envoy has received and does not use yet.
type Warming struct {
	// Starting is true if Envoy still waits for its first configuration, and serves nothing. Then there are no names.
	Starting bool
	// Clusters and Listeners are sorted. MoreClusters and MoreListeners are true if there are others.
	Clusters, Listeners         []string
	MoreClusters, MoreListeners bool
}

// Warming asks Envoy what it does not use yet. If that is nothing, as it nearly always is, the question costs Envoy a few statistics.
func (a *Admin) Warming(ctx context.Context) (w Warming, err error) {
	stats, err := a.gauges(ctx, warmingStats)
	if err != nil {
		return w, err
	}
	clusters, told := stats[warmingClusters]
	listeners, toldToo := stats[warmingListeners]
	switch expected, state := int(a.epoch.Load()), stats[serverState]; {
	case !told || !toldToo:
		return w, ErrUntold
	case stats[presentEpoch] != expected:
		return w, otherEpoch(expected, stats[presentEpoch])
	case state == preInitializing || state == initializing:
		return Warming{Starting: true}, nil
	}
	w.MoreClusters, w.MoreListeners = clusters > maxWarming, listeners > maxWarming
	if clusters > 0 && !w.MoreClusters {
		w.Clusters, err = a.warmingClusters(ctx)
	}
	if listeners > 0 && !w.MoreListeners && err == nil {
		w.Listeners, err = a.warmingListeners(ctx)
	}
	return w, err
}

func (a *Admin) warmingClusters(ctx context.Context) (names []string, err error) {
	var dump struct {
		Configs []struct{ Cluster struct{ Name string } }
	}
	if err := a.dump(ctx, "/config_dump?resource=dynamic_warming_clusters&mask=cluster.name", &dump); err != nil {
		return nil, err
	}
	for _, c := range dump.Configs {
		names = append(names, c.Cluster.Name)
	}
	slices.Sort(names)
	return names, nil
}

func (a *Admin) warmingListeners(ctx context.Context) (names []string, err error) {
	var dump struct {
		Configs []struct {
			Name    string
			Warming *struct{} `json:"warming_state"`
		}
	}
	if err := a.dump(ctx, "/config_dump?resource=dynamic_listeners&mask=name,warming_state.last_updated", &dump); err != nil {
		return nil, err
	}
	for _, l := range dump.Configs {
		if l.Warming != nil {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// dump reads a description of Envoy's configuration.
func (a *Admin) dump(ctx context.Context, path string, into any) error {
	text, err := a.text(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("Envoy's admin interface: GET %s: %w", path, err)
	}
	return nil
}
