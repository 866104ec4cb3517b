// Package folder is the source for a folder of Secrets (--credentialsDir): NAMESPACE/NAME has the files tls.crt, tls.key, ca.crt,
// ca.crl and tls.ocsp-staple of one Secret. All are optional, except the key of a certificate.
//
// Invariants:
//   - Changes are found within about a second, and at the latest after poll. Files that are replaced one after the other are read when
//     nothing has changed for a moment.
//   - A Secret that cannot be used keeps its last good version, and has a Problem that names the file. It is removed with its folder.
//   - Nothing of the content of a file is in a Problem or in the log.
//
// Goroutines: Run works in the caller's goroutine. The watcher of files has one of its own, which ends before Run returns.
package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/run/filewatch"
	"github.com/pilotmesh/pilot/internal/security/credential"
	"github.com/pilotmesh/pilot/internal/source"
)

// poll is how often the files are read without an event of the watch. Some changes cause no event.
const poll = 10 * time.Second

// maxSecrets bounds how many Secrets are read.
const maxSecrets = 2000

// Source reads and watches a folder.
type Source struct {
	dir string
	log *slog.Logger

	// The rest belongs to the goroutine of Run.

	secrets  map[api.Key]*kube.Secret
	problems []api.Problem
	synced   bool
}

// New returns the source for a folder. It reads nothing before Run.
func New(dir string, log *slog.Logger) *Source {
	return &Source{dir: dir, log: log, secrets: map[api.Key]*kube.Secret{}}
}

// Name returns "secrets:" and the folder.
func (s *Source) Name() string { return "secrets:" + s.dir }

// Run passes batches to sink until ctx is cancelled, and then returns nil. Errors in files are Problems, and not Go errors.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	files := filewatch.Watcher{Log: s.log}
	defer files.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.read(s.watch(&files), sink)
		timer.Reset(poll)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-files.Changed():
			files.Settle(ctx)
		case <-files.Failed(): //nolint:errcheck // the files are read again after any error
		}
	}
}

// listed is the result of listing the folders.
type listed struct {
	keys []api.Key
	// odd are folders that are not read, with the reason.
	odd []api.Problem
	err error
}

// watch watches all folders, and returns which Secrets there are then.
func (s *Source) watch(files *filewatch.Watcher) listed {
	is := s.list()
	for range 3 { // the next round finds folders that were added in this one
		// A path that does not exist makes its directory watched, however the directory is reached.
		paths := []string{filepath.Join(s.dir, "any")}
		for _, k := range is.keys {
			paths = append(paths, filepath.Join(s.dir, k.Namespace, "any"))
			for _, name := range names() {
				paths = append(paths, s.path(k, name))
			}
		}
		files.Follow(paths)
		was := is
		if is = s.list(); slices.Equal(was.keys, is.keys) {
			break
		}
	}
	return is
}

// list finds the folders of Secrets.
func (s *Source) list() (l listed) {
	namespaces, err := os.ReadDir(s.dir)
	if err != nil {
		l.err = err
		return l
	}
	for _, namespace := range namespaces {
		if strings.HasPrefix(namespace.Name(), ".") {
			continue
		}
		at := filepath.Join(s.dir, namespace.Name())
		secrets, err := os.ReadDir(at)
		if err != nil {
			l.odd = append(l.odd, warning(at, "it is not read: %v; Secrets are in folders NAMESPACE/NAME", cause(err)))
			continue
		}
		for _, secret := range secrets {
			if strings.HasPrefix(secret.Name(), ".") {
				continue
			}
			path := filepath.Join(at, secret.Name())
			switch info, err := os.Stat(path); {
			case err != nil:
				l.odd = append(l.odd, warning(path, "it is not read: %v", cause(err)))
			case !info.IsDir():
				l.odd = append(l.odd, warning(path, "it is not read: it is no folder; Secrets are in folders NAMESPACE/NAME"))
			case api.CheckNames(namespace.Name(), secret.Name()) != "":
				l.odd = append(l.odd, warning(path, "it is not read: %s", api.CheckNames(namespace.Name(), secret.Name())))
			case len(l.keys) == maxSecrets:
				l.odd = append(l.odd, warning(s.dir, "it has more than %d Secrets; the others are not read", maxSecrets))
				return l
			default:
				l.keys = append(l.keys, api.Key{Kind: kube.KindSecret, Namespace: namespace.Name(), Name: secret.Name()})
			}
		}
	}
	return l
}

func names() []string {
	return []string{credential.TLSCertificate, credential.TLSKey, credential.TLSRoots, credential.TLSRevoked, credential.TLSStaple, credential.DockerConfig}
}

func (s *Source) path(k api.Key, name string) string {
	return filepath.Join(s.dir, k.Namespace, k.Name, name)
}

// read reads all files and passes on the changes.
func (s *Source) read(l listed, sink source.Sink) {
	b := source.Batch{Source: s.Name(), Synced: true}
	problems := l.odd
	if l.err != nil {
		problems = append(problems, api.Problem{Position: api.Position{File: s.dir}, Severity: api.Error, Code: "credential-invalid", Reason: fmt.Sprintf(
			"the folder of Secrets cannot be read: %v; their last known content stays in force", cause(l.err))})
	} else {
		still := make(map[api.Key]bool, len(l.keys))
		for _, k := range l.keys {
			still[k] = true
		}
		for k := range s.secrets {
			if !still[k] {
				delete(s.secrets, k)
				b.Events = append(b.Events, source.Event{Key: k})
			}
		}
	}
	for _, k := range l.keys {
		was := s.secrets[k]
		is, wrong := s.secret(k, was)
		problems = append(problems, wrong...)
		if was == nil || !was.Same(is) {
			s.secrets[k] = is
			b.Events = append(b.Events, source.Event{Key: k, Value: is, Added: was == nil})
		}
	}
	slices.SortFunc(b.Events, func(x, y source.Event) int { return x.Key.Compare(y.Key) })
	b.Problems = source.ProblemEvents(s.problems, problems)
	s.problems = problems
	if !s.synced || len(b.Events) > 0 || len(b.Problems) > 0 {
		s.synced = true
		sink.Apply(b)
	}
}

// secret reads one Secret. was is the last read version; nil if there is none.
func (s *Source) secret(k api.Key, was *kube.Secret) (*kube.Secret, []api.Problem) {
	var last *credential.Secret
	if was != nil {
		last = was.Content
	}
	entries := map[string][]byte{}
	for _, name := range names() {
		content, err := filewatch.Read(s.path(k, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			reason := fmt.Sprintf("it cannot be read: %v", cause(err))
			return &kube.Secret{Content: last, Trouble: reason}, []api.Problem{s.problem(k, []string{name}, reason, last != nil)}
		default:
			entries[name] = content
		}
	}
	content, flaws := credential.Parse(entries)
	is := content.Or(last)
	var problems []api.Problem
	for _, f := range flaws {
		if !f.Unused {
			problems = append(problems, warning(s.path(k, f.Entries[0]), "%s", f.Reason))
			continue
		}
		first := ""
		if len(f.Entries) > 0 {
			first = f.Entries[0]
		}
		problems = append(problems, s.problem(k, f.Entries, f.Reason, is.Has(first)))
	}
	return &kube.Secret{Content: is}, problems
}

// problem returns the problem of files that cannot be used.
func (s *Source) problem(k api.Key, of []string, reason string, kept bool) api.Problem {
	at := filepath.Join(s.dir, k.Namespace, k.Name)
	if len(of) > 0 {
		at = s.path(k, of[0])
	}
	if len(of) > 1 {
		reason = strings.Join(of, " and ") + ": " + reason
	}
	if kept {
		reason += "; the last good version stays in force"
	} else {
		reason += "; proxies that ask for it do not get it"
	}
	return api.Problem{Position: api.Position{File: at}, Severity: api.Error, Code: "credential-invalid", Reason: reason}
}

func warning(at, format string, args ...any) api.Problem {
	return api.Problem{Position: api.Position{File: at}, Severity: api.Warning, Code: "credential-invalid", Reason: fmt.Sprintf(format, args...)}
}

// cause returns an error without the path, which a Problem has already.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
