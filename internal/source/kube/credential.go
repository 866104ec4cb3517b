package kube

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/security/credential"
)

// WantSecrets sets which Secrets, and which ConfigMaps with certificates of authorities, the source reads: it watches each of them alone, and no
// others. The list replaces the previous one.
// WantSecrets returns at once and may be called from any goroutine.
func (s *Source) WantSecrets(keys []api.Key) {
	s.mu.Lock()
	s.wantedSecrets = keys
	s.mu.Unlock()
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// watchedSecret is one Secret or ConfigMap that is watched because proxies ask for it.
type watchedSecret struct {
	key     api.Key
	table   *table
	watcher *watcher
	// refused is why it may not be read; empty if it may, or if that is not known yet.
	refused string
	// shown is the value that was passed on; nil if none was.
	shown *kube.Secret
}

// name is the name in the table.
func (s *watchedSecret) name() name { return name{s.key.Namespace, s.key.Name} }

// readSecret is the content that the table keeps for a Secret or a ConfigMap.
type readSecret struct {
	content *credential.Secret
	flaws   []credential.Flaw
}

// followSecrets begins to watch the Secrets and ConfigMaps that are wanted, and ends the watches of others.
func (r *run) followSecrets() {
	r.Source.mu.Lock()
	keys := r.wantedSecrets
	r.Source.mu.Unlock()
	still := make(map[api.Key]bool, len(keys))
	for _, k := range keys {
		k.Cluster = r.o.Cluster
		still[k] = true
		if r.credentials[k] == nil {
			r.credentials[k] = r.watchSecret(k)
		}
	}
	for k, s := range r.credentials {
		if still[k] {
			continue
		}
		s.watcher.stop()
		r.remove(s.table)
		r.report("object/" + k.String())
		if s.shown != nil {
			r.emit(s.table, s.name(), shown{value: s.shown}, shown{})
		}
		delete(r.credentials, k)
	}
}

// watchedKind says how objects are read that are watched one by one.
type watchedKind struct {
	resource, plural string
	// role is the ClusterRole of manifests/secrets.yaml that lets the control plane read them.
	role    string
	example runtime.Object
	list    func() runtime.Object
	parse   func(runtime.Object) (*credential.Secret, []credential.Flaw)
}

func watchedKindOf(kind string) watchedKind {
	if kind == kube.KindConfigMap {
		return watchedKind{
			"configmaps", "ConfigMaps", "pilot-discovery-configmaps", &core.ConfigMap{}, func() runtime.Object { return &core.ConfigMapList{} },
			func(o runtime.Object) (*credential.Secret, []credential.Flaw) {
				return credential.ParseRoots(o.(*core.ConfigMap).Data)
			},
		}
	}
	return watchedKind{
		"secrets", "Secrets", "pilot-discovery-secrets", &core.Secret{}, func() runtime.Object { return &core.SecretList{} },
		func(o runtime.Object) (*credential.Secret, []credential.Flaw) {
			return credential.Parse(o.(*core.Secret).Data)
		},
	}
}

// watchSecret begins to watch one Secret or ConfigMap. An API server asks for the right to list and watch this name only.
func (r *run) watchSecret(k api.Key) *watchedSecret {
	s, of := &watchedSecret{key: k}, watchedKindOf(k.Kind)
	s.table = &table{
		what: strings.ToLower(k.Kind) + " " + k.Namespace + "/" + k.Name, kind: k.Kind, cluster: r.o.Cluster,
		convert: func(o runtime.Object) content {
			parsed, flaws := of.parse(o)
			return &readSecret{parsed, flaws}
		},
		merge:   mergeSecrets,
		changed: func() { r.showSecret(s) },
		failed: func(err error) {
			if apierrors.IsForbidden(err) && !s.table.listed {
				s.refused = fmt.Sprintf("the control plane may not read %s of namespace %s; bind its account to the ClusterRole %s of manifests/secrets.yaml there",
					of.plural, k.Namespace, of.role)
				r.showSecret(s)
			}
		},
	}
	c := r.clients
	s.watcher = r.watch(s.table, c.typed(c.core, of.resource, filter{namespace: k.Namespace, fields: "metadata.name=" + k.Name}, of.example, of.list))
	return s
}

// mergeSecrets keeps the good parts of the old version where the new one cannot be used.
func mergeSecrets(old, is content) content {
	was, now := old.(*readSecret), is.(*readSecret)
	now.content = now.content.Or(was.content)
	if now.content.Equal(was.content) && slices.EqualFunc(now.flaws, was.flaws, func(a, b credential.Flaw) bool { return a.Reason == b.Reason }) {
		return old
	}
	return now
}

// showSecret passes on the state of a Secret, also if it does not exist.
func (r *run) showSecret(s *watchedSecret) {
	is := &kube.Secret{Trouble: s.refused}
	var problems []api.Problem
	if row, ok := s.table.rows[s.name()].(*readSecret); ok {
		is.Content = row.content
		problems = r.secretProblems(s.key, row)
	}
	if s.table.listed {
		s.refused, is.Trouble = "", ""
	} else if is.Trouble == "" {
		return // nothing is known yet
	}
	r.report("object/"+s.key.String(), problems...)
	if s.shown != nil && s.shown.Same(is) {
		return
	}
	var was shown
	if s.shown != nil {
		was.value = s.shown
	}
	r.emit(s.table, s.name(), was, shown{value: is})
	s.shown = is
}

// secretProblems are the problems of a Secret.
func (r *run) secretProblems(k api.Key, row *readSecret) (problems []api.Problem) {
	for _, f := range row.flaws {
		p := api.Problem{Object: k, Position: api.Position{File: r.place}, Severity: api.Warning, Code: "credential-invalid", Reason: f.Reason}
		first := ""
		if len(f.Entries) > 0 {
			p.Field, first = "data."+strings.Join(f.Entries, ", data."), f.Entries[0]
		}
		if f.Unused {
			p.Severity = api.Error
			if row.content.Has(first) {
				p.Reason += "; the last good version stays in force"
			} else {
				p.Reason += "; proxies that ask for it do not get it"
			}
		}
		problems = append(problems, p)
	}
	return problems
}
