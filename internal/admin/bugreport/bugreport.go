// Package bugreport writes an archive with what a developer needs to look into a fault of a mesh: versions, problems, pages of the control plane,
// configuration of proxies, and logs.
//
// Invariants: no private key, password or token is in the archive. All content passes Clean before it is written, and Secrets are never asked for.
// The archive is bounded in size and time: what does not fit is left out, and the archive says so. The package starts no goroutines.
package bugreport

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/admin"
)

// maxFile bounds one file of the archive.
const maxFile = 16 << 20

// Options are the parts of an archive and its limits.
type Options struct {
	// Get reads a page of the control plane.
	Get func(ctx context.Context, page string, query url.Values) ([]byte, error)
	// Files are other files: logs, and the versions of programs.
	Files []File
	// Proxies is how many proxies have their configuration in the archive. Proxies with something wrong come first.
	Proxies int
	// MaxBytes bounds the content of all files together, before it is compressed.
	MaxBytes int
	// Now is the time of the files, and Say reports progress.
	Now time.Time
	Say func(format string, args ...any)
}

// File is a file that is collected outside the control plane.
type File struct {
	Name string
	Read func(ctx context.Context) ([]byte, error)
}

// archive is an archive that is being written.
type archive struct {
	Options
	tar     *tar.Writer
	left    []string // the missing parts, with reasons
	written []string
	bytes   int
	err     error // of the output
}

// Write writes an archive (.tar.gz). It returns the missing parts, with reasons; the archive has this list too. An error means that the output
// cannot be written.
func Write(ctx context.Context, w io.Writer, o Options) (left []string, err error) {
	compressed := gzip.NewWriter(w)
	a := &archive{Options: o, tar: tar.NewWriter(compressed)}
	a.left = append(a.left, "Secrets, private keys, passwords and tokens: never collected; where one would be, the archive has "+replaced)
	proxies := a.proxies(ctx)
	for _, f := range o.Files {
		a.collect(ctx, f.Name, f.Read)
	}
	for _, p := range pages() {
		a.page(ctx, p+extension(p), p, nil)
	}
	for i, p := range proxies {
		if i == o.Proxies {
			a.leave("the configuration of %d more proxies: --proxies is %d", len(proxies)-i, o.Proxies)
			break
		}
		a.page(ctx, "proxies/"+p+"/config_dump.json", "/debug/config_dump", url.Values{"proxyID": {p}, "types": {"cds,lds,rds,eds"}})
		a.page(ctx, "proxies/"+p+"/sidecarz.json", "/debug/sidecarz", url.Values{"proxyID": {p}})
	}
	a.put("CONTENT.txt", []byte(a.content()))
	if err := errors.Join(a.err, a.tar.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	return a.left, nil
}

// pages are the pages that are about the whole mesh. The objects of the mesh are in configz.
func pages() []string {
	return []string{
		"/version", "/ready", "/debug/problemz", "/debug/syncz", "/debug/push_status", "/debug/connections", "/debug/adsz", "/debug/configz", "/debug/mesh", "/debug/registryz",
		"/debug/endpointz", "/debug/gatewayz", "/debug/ingressz", "/debug/clusterz", "/debug/registries", "/debug/historyz", "/debug/cellz", "/debug/logging", "/metrics",
	}
}

func extension(page string) string {
	if page == "/metrics" || page == "/ready" {
		return ".txt"
	}
	return ".json"
}

// proxies returns the names of the proxies. Proxies with something wrong come first.
func (a *archive) proxies(ctx context.Context) (names []string) {
	body, err := a.Get(ctx, "/debug/syncz", nil)
	list := []admin.Sync{}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		a.leave("the configuration of proxies: %s", withoutSecrets([]byte(err.Error())))
		return nil
	}
	wrong := func(s admin.Sync) int {
		for _, t := range s.Types {
			if t.State == admin.Stale || t.State == admin.Rejected || t.State == admin.Warming || t.HeldBack > 0 {
				return 0
			}
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y admin.Sync) int { return cmp.Compare(wrong(x), wrong(y)) })
	for _, s := range list {
		if !slices.Contains(names, s.Proxy) {
			names = append(names, s.Proxy)
		}
	}
	return names
}

// page adds a page of the control plane.
func (a *archive) page(ctx context.Context, name, page string, query url.Values) {
	a.collect(ctx, strings.TrimPrefix(name, "/"), func(ctx context.Context) ([]byte, error) { return a.Get(ctx, page, query) })
}

// collect adds a file, or remembers why it is left out.
func (a *archive) collect(ctx context.Context, name string, read func(context.Context) ([]byte, error)) {
	if a.err != nil {
		return
	}
	if err := ctx.Err(); err != nil {
		a.leave("%s: the time is over (--timeout)", name)
		return
	}
	a.Say("collecting %s", name)
	body, err := read(ctx)
	if err != nil {
		a.leave("%s: %s", name, withoutSecrets([]byte(err.Error())))
		return
	}
	if len(body) > maxFile {
		a.leave("%s: its last %d bytes, because it has %d", name, len(body)-maxFile, len(body))
		body = body[:maxFile]
	}
	clean := withoutSecrets(body)
	if a.bytes+len(clean) > a.MaxBytes {
		a.leave("%s: the archive would be larger than --max-size", name)
		return
	}
	a.bytes += len(clean)
	a.put(name, clean)
}

// put writes a file.
func (a *archive) put(name string, body []byte) {
	if a.err != nil {
		return
	}
	a.written = append(a.written, name)
	a.err = a.tar.WriteHeader(&tar.Header{Name: "pilot-bug-report/" + name, Mode: 0o600, Size: int64(len(body)), ModTime: a.Now, Format: tar.FormatPAX})
	if a.err == nil {
		_, a.err = a.tar.Write(body)
	}
}

func (a *archive) leave(format string, args ...any) {
	a.left = append(a.left, fmt.Sprintf(format, args...))
}

// content lists the files of the archive, and the missing ones.
func (a *archive) content() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Written at %s. Read it before you send it to anybody: it has the names of hosts, services and accounts, and addresses.\n\nFiles:\n", a.Now.UTC().Format(time.RFC3339))
	for _, name := range a.written {
		fmt.Fprintf(&b, "  %s\n", name)
	}
	b.WriteString("\nLeft out:\n")
	for _, text := range a.left {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	return b.String()
}
