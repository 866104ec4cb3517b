package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/run/filewatch"
	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// Settings are the settings of a keeper.
type Settings struct {
	// Folder is where an authority may be plugged in, and Plug another place, which is looked at if the folder has none; it may be nil.
	// If there is none when the keeper starts, the authority is self-signed and kept in Store.
	Folder Folder
	Plug   Plug
	Store  Store
	Roots  Roots
	// Limits bound how long certificates are valid.
	Limits Limits
	// Check is how often the store is looked at, because another replica may have changed it. More than half a minute counts as that.
	Check time.Duration
	// Names are the names and addresses by which clients call the control plane. Serving are files with its certificate; without
	// them the authority signs it.
	Names   []string
	Serving ServingFiles
	// More returns roots that the mesh configuration adds to the roots of the authority.
	More func() *Trusted
	// Outside is true if an external authority signs the certificates of workloads. This one then signs for the control plane only.
	Outside bool
	// Compliance restricts the TLS of connections to the control plane.
	Compliance compliance.Policy
	// Changed, if set, is called when another authority or another revocation list is in force.
	Changed func()
	// Report is called with everything that is wrong at present, whenever that changes.
	Report func(problems []string)
	Log    *slog.Logger
	// Now is the clock.
	Now func() time.Time
}

// moment is the state in force until something changes.
type moment struct {
	authority *Authority
	serving   *tls.Certificate
	tls       *tls.Config
}

// Keeper has the present authority and certificate of the control plane.
type Keeper struct {
	s     Settings
	now   atomic.Pointer[moment]
	ready chan struct{}

	// The rest belongs to the goroutine of Run.

	files    filewatch.Watcher
	plug     Plug      // where the authority is plugged in; nil if it is self-signed
	known    *known    // the self-signed authority, as it was last kept; nil if there is none yet
	renew    time.Time // when the serving certificate is to be renewed; zero if it is from files
	problems []string
}

// NewKeeper returns a keeper. Run fills it.
func NewKeeper(s Settings) *Keeper {
	if s.More == nil {
		none := &Trusted{}
		s.More = func() *Trusted { return none }
	}
	return &Keeper{s: s, ready: make(chan struct{}), files: filewatch.Watcher{Log: s.Log}}
}

// Ready is closed when there is an authority.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Authority returns the present authority. It must not be called before Ready.
func (k *Keeper) Authority() *Authority { return k.now.Load().authority }

// Revoked returns an error if a list that is in force now names a certificate of one of the chains that TLS has verified. A certificate that
// was good when its connection began may have been revoked since.
func (k *Keeper) Revoked(chains [][]*x509.Certificate) error {
	m := k.now.Load()
	if m == nil {
		return nil
	}
	for _, chain := range chains {
		if err := m.authority.Revoked(chain); err != nil {
			return err
		}
	}
	return nil
}

// Limits returns the bounds of how long certificates are valid.
func (k *Keeper) Limits() Limits { return k.s.Limits }

// pause is the time to the next attempt when something has failed.
const pause = 5 * time.Second

// Run keeps the authority until ctx ends. It returns an error if there is none at the start and none can be made.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.files.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	if err := k.find(ctx); err != nil {
		return err
	}
	for first := true; ; first = false {
		k.files.Follow(k.paths())
		again, err := k.refresh(ctx)
		if first && err != nil {
			return err
		}
		if first {
			close(k.ready)
			k.s.Log.Info("the certificate authority is ready", "authority", k.Authority().String(), "plugged_in", k.plug != nil)
		}
		if err != nil {
			again = k.s.Now().Add(pause)
		}
		k.report(err)
		timer.Reset(max(again.Sub(k.s.Now()), 0))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-k.files.Changed():
			k.files.Settle(ctx)
		case <-k.files.Failed(): //nolint:errcheck // whatever failed, the files are read again
		}
	}
}

// paths returns the files that are read.
func (k *Keeper) paths() []string {
	list := k.s.Serving.paths()
	if f, ok := k.plug.(Folder); ok {
		list = append(list, f.paths()...)
	}
	if f, ok := k.s.Store.(File); ok && k.plug == nil {
		list = append(list, f.Dir.Path(keptFile), f.Dir.Path(rootsFile))
	}
	return list
}

// find finds out where the authority is. To take another one because its place cannot be read would end all trust in the mesh.
func (k *Keeper) find(ctx context.Context) error {
	if k.s.Folder != "" && k.s.Folder.Exists() {
		k.plug = k.s.Folder
		return nil
	}
	if k.s.Plug == nil {
		return nil
	}
	_, err := k.s.Plug.Files(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: whether an authority is plugged in is not known: %w", k.s.Plug, err)
	}
	k.plug = k.s.Plug
	return nil
}

// report logs and reports the problems if they have changed.
func (k *Keeper) report(err error) {
	var problems []string
	if err != nil {
		problems = strings.Split(err.Error(), "\n") // one line for each error that was joined
	}
	if slices.Equal(problems, k.problems) {
		return
	}
	k.problems = problems
	for _, p := range problems {
		k.s.Log.Warn("the certificate authority stays as it is", "problem", p)
	}
	if len(problems) == 0 {
		k.s.Log.Info("the certificate authority is well again")
	}
	if k.s.Report != nil {
		k.s.Report(problems)
	}
}

// poll is how often files are read without a sign that they have changed. Some changes give none.
const poll = 10 * time.Second

// refresh reads and renews everything that is due. It returns when it must be called again. A failed part leaves the others unchanged.
func (k *Keeper) refresh(ctx context.Context) (again time.Time, err error) {
	now := k.s.Now()
	was := k.now.Load()
	if was == nil {
		was = &moment{}
	}
	next := *was
	authority, again, err := k.load(ctx, now)
	if err == nil && k.plug != nil {
		err = authority.follows(was.authority, now)
	}
	if err != nil {
		err = fmt.Errorf("certificate authority: %w", err)
	} else if !authority.equal(was.authority) {
		next.authority = authority
	}
	if next.authority == nil {
		return again, err
	}
	problem := k.serve(&next, was, now)
	if problem != nil {
		problem = fmt.Errorf("the certificate of the control plane: %w", problem)
	}
	if next.serving == nil {
		return again, errors.Join(err, problem)
	}
	if next.authority != was.authority || next.serving != was.serving || k.s.Serving.Roots != "" {
		roots, failed := k.clientRoots(next.authority)
		if failed != nil {
			problem = errors.Join(problem, fmt.Errorf("the roots of clients: %w", failed))
		}
		next.tls = k.tlsConfig(next.serving, roots)
		k.now.Store(&next)
		if was.authority != nil && next.authority != was.authority {
			k.s.Log.Info("the certificate authority has changed", "authority", next.authority.String())
			if k.s.Changed != nil {
				k.s.Changed()
			}
		}
	}
	if !k.renew.IsZero() && k.renew.Before(again) {
		again = k.renew
	}
	return again, errors.Join(err, problem)
}

// load returns the authority to use, and when to look again.
func (k *Keeper) load(ctx context.Context, now time.Time) (*Authority, time.Time, error) {
	if k.plug != nil {
		m, err := read(ctx, k.plug)
		if err != nil {
			return nil, now.Add(pause), fmt.Errorf("%s: %w", k.plug, err)
		}
		a, err := NewAuthority(m, now)
		if was := k.now.Load(); err == nil && was != nil && m.CRL != nil && len(a.crls) == 0 && len(was.authority.crls) > 0 {
			err = errors.New("its revocation list is empty now, as a file is while it is being written; remove it if nothing is revoked any more")
		}
		if err != nil {
			return nil, now.Add(pause), fmt.Errorf("%s: %w", k.plug, err)
		}
		return a, now.Add(poll), nil
	}
	return k.stored(ctx, now)
}

// servingFor is how long a certificate of the control plane is valid; it is renewed after half that time.
const servingFor = 24 * time.Hour

// serve sets the certificate of the control plane.
func (k *Keeper) serve(next, was *moment, now time.Time) error {
	fromFile, err := k.s.Serving.read()
	switch {
	case err != nil:
		return err // the last one stays in use
	case fromFile != nil:
		if was.serving == nil || !slices.EqualFunc(fromFile.Certificate, was.serving.Certificate, slices.Equal[[]byte]) {
			next.serving = fromFile
		}
		return nil
	case was.serving != nil && next.authority == was.authority && now.Before(k.renew):
		return nil
	}
	cert, err := next.authority.Serve(k.s.Names, min(servingFor, k.s.Limits.Max), now)
	if err != nil {
		return err
	}
	next.serving = cert
	k.renew = now.Add(cert.Leaf.NotAfter.Sub(now) / 2)
	return nil
}

// clientRoots returns the roots of certificates of clients: the roots of the mesh, and the roots in a file.
func (k *Keeper) clientRoots(a *Authority) (*x509.CertPool, error) {
	if k.s.Serving.Roots == "" {
		return a.Pool(), nil
	}
	text, err := filewatch.Read(k.s.Serving.Roots)
	if err != nil {
		return a.Pool(), err
	}
	pool := a.Pool().Clone()
	if !pool.AppendCertsFromPEM(text) {
		return a.Pool(), fmt.Errorf("%s has no PEM certificate", k.s.Serving.Roots)
	}
	return pool, nil
}

// tlsConfig returns the settings of connections to the control plane. A client may show a certificate; one that it shows must be good.
func (k *Keeper) tlsConfig(serving *tls.Certificate, roots *x509.CertPool) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*serving},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots,
		// A session that is resumed would bring back a certificate that has been revoked.
		SessionTicketsDisabled: true,
		VerifyConnection:       func(s tls.ConnectionState) error { return k.Revoked(s.VerifiedChains) },
	}
	k.s.Compliance.Apply(c)
	return c
}

// TLS returns settings of connections that follow the keeper: each new connection uses the settings in force then.
func (k *Keeper) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := k.now.Load()
			if m == nil {
				return nil, errors.New("there is no certificate yet")
			}
			if !k.s.Outside {
				return m.tls, nil
			}
			return k.trusting(m.tls, k.s.More().All()), nil
		},
	}
}

// trusting returns settings that also accept certificates of clients for which further roots vouch.
func (*Keeper) trusting(c *tls.Config, roots []*x509.Certificate) *tls.Config {
	c = c.Clone()
	c.ClientCAs = c.ClientCAs.Clone()
	for _, r := range roots {
		c.ClientCAs.AddCert(r)
	}
	return c
}
