package secret

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/run/filewatch"
)

// IssueOptions are the settings of certificates from an authority.
type IssueOptions struct {
	// Request asks the authority for a certificate. It returns the certificate, its chain and the roots, each as PEM.
	Request func(ctx context.Context, csr string, valid time.Duration) ([]string, error)
	// Namespace and Account are those for which the certificate must be; an empty Account is not checked. TrustDomain is only a hint for
	// the authority.
	TrustDomain, Namespace, Account string
	// Valid is how long a certificate shall be valid. It is renewed when the share Grace of that is left, give or take a hundredth.
	Valid time.Duration
	Grace float64
	// RSABits is the size of RSA keys; 0 for ECDSA keys of Curve. PKCS8 writes keys in that format.
	RSABits int
	Curve   elliptic.Curve
	PKCS8   bool
	// CRL is a file with lists of revoked certificates, which may be missing or come later; empty for none.
	CRL string
	// Output is a folder to which key, certificate and roots are written; empty for none. root-cert.pem there has the roots of the authority
	// alone, and trust-bundle.pem all roots that Envoy trusts. Provided is a folder from which certificates are read if
	// Output has none. They are used from the start on, so that a machine has its certificate again after a reboot.
	Output, Provided string
	Log              *slog.Logger
}

// Times of requests to the authority.
const (
	// answerWithin is how long a request may take, and impatience how long Envoy waits for the first one before its request is
	// refused because there is no certificate yet.
	answerWithin = 10 * time.Second
	impatience   = 2 * time.Second
	// firstPause and longestPause limit the time to the next attempt.
	firstPause, longestPause = 200 * time.Millisecond, 20 * time.Second
)

// Issued is the provider of the workload's own certificate and of the roots of the mesh, which it gets from a certificate authority.
// The key never leaves the memory of the agent and of Envoy, unless IssueOptions.Output says so.
type Issued struct {
	board *Board
	o     IssueOptions
	held  atomic.Pointer[held]
	fails atomic.Int64

	// crl are the lists of revoked certificates as PEM, read from the file that watched watches, and anchors the roots in addition to the
	// authority's. They belong to the goroutine of Run.
	crl     []byte
	watched filewatch.Watcher
	anchors []byte
	// trusted delivers anchors.
	trusted anchors
	// unwritten is true if the last write to the output folder has failed.
	unwritten bool
	// now is the clock.
	now func() time.Time
}

// held is the last answer of the authority: certificate, key and roots.
type held struct {
	pair    *tls.Certificate
	roots   []byte
	answers map[string]Answer
	// renew is when another certificate is asked for, by the wall clock: it has no monotonic reading.
	renew time.Time
	// restored is true if it was read from files.
	restored bool
}

// NewIssued returns a provider for a board.
func NewIssued(b *Board, o IssueOptions) *Issued {
	if o.Curve == nil {
		o.Curve = elliptic.P256()
	}
	i := &Issued{board: b, o: o, watched: filewatch.Watcher{Log: o.Log}, trusted: newAnchors(), now: time.Now}
	i.separateRoots()
	disk.Sweep(o.Output, keptNames()...)
	i.restore(time.Now())
	return i
}

// Certificate returns the workload's certificate with its key; nil if there is none.
func (i *Issued) Certificate() *tls.Certificate {
	if h := i.held.Load(); h != nil {
		return h.pair
	}
	return nil
}

// Roots returns the roots of the mesh, as PEM.
func (i *Issued) Roots() []byte {
	if h := i.held.Load(); h != nil {
		return h.roots
	}
	return nil
}

// Failures returns how many requests to the authority have failed.
func (i *Issued) Failures() int64 { return i.fails.Load() }

// Provides reports whether a secret comes from the authority.
func (i *Issued) Provides(name string) bool { return name == workload || name == meshRoots }

// result is the result of a request.
type result struct {
	held *held
	err  error
}

// recheck is how often the wall clock is read. While a machine is suspended, its timers stop and its certificates age.
const recheck = time.Minute

// attempt is the state of the requests to the authority.
type attempt struct {
	problem string        // with the last one
	next    time.Time     // of the next one
	pause   time.Duration // after the next one that fails
	busy    bool          // one is under way
}

// Run obtains and renews the certificate until ctx is cancelled. It requests one before Envoy does, so that Envoy need not wait.
func (i *Issued) Run(ctx context.Context) error {
	results := make(chan result, 1)
	a := attempt{pause: firstPause}
	defer func() {
		if a.busy {
			<-results
		}
	}()
	defer i.watched.Close()
	reread := i.followCRL()
	late := time.NewTimer(impatience)
	defer late.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		view := i.board.View()
		i.post(view, a.problem)
		select {
		case <-ctx.Done():
			return nil
		case <-view.Next:
		case <-i.watched.Changed():
			i.watched.Settle(ctx)
			reread = i.followCRL()
		case <-i.watched.Failed(): //nolint:errcheck // whatever failed, the file is read again
			reread = i.followCRL()
		case <-reread:
			reread = i.followCRL()
		case i.anchors = <-i.trusted:
			i.renewRoots()
			i.write(i.held.Load())
		case <-late.C:
			if i.held.Load() == nil && a.problem == "" {
				a.problem = "the certificate authority has not answered yet"
			}
		case <-timer.C:
			if i.unwritten {
				i.write(i.held.Load())
			}
			if !a.busy && !i.now().Before(a.next) {
				a.busy = true
				go func() { results <- i.obtain(ctx) }()
			}
			timer.Reset(i.until(a))
		case r := <-results:
			i.take(&a, r)
			timer.Reset(i.until(a))
		}
	}
}

// until returns how long to wait before the clock is read again.
func (i *Issued) until(a attempt) time.Duration {
	if a.busy {
		return recheck
	}
	return min(a.next.Sub(i.now()), recheck)
}

// take stores the result of a request.
func (i *Issued) take(a *attempt, r result) {
	a.busy = false
	if r.err != nil {
		i.fails.Add(1)
		a.problem = r.err.Error()
		a.next = i.now().Add(i.jitter(i.soon(a.pause)))
		a.pause = min(2*a.pause, longestPause)
		return
	}
	i.held.Store(r.held)
	i.renewRoots()
	*a = attempt{next: r.held.renew, pause: firstPause}
	i.write(i.held.Load())
}

// soon shortens a pause, so that there are several attempts before the present certificate expires.
func (i *Issued) soon(pause time.Duration) time.Duration {
	if h := i.held.Load(); h != nil {
		if left := h.pair.Leaf.NotAfter.Sub(i.now()); left > 0 {
			return min(pause, max(left/5, firstPause))
		}
	}
	return pause
}

// jitter returns a duration of about d, so that agents that started together do not send their requests together.
func (*Issued) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + mathrand.Float64()/2)) //nolint:gosec // it keeps nothing secret
}

// post posts the present answers, or the problem, to the board.
func (i *Issued) post(v *View, problem string) {
	h := i.held.Load()
	for _, name := range []string{workload, meshRoots} {
		e, wanted := v.Entries[name]
		switch {
		case !wanted:
		case h != nil && (e.version != h.answers[name].version || problem == "" && e.State != StateServed):
			i.board.Post(name, h.answers[name])
		case problem != "" && e.Problem != problem && name == workload:
			i.board.Post(name, Answer{Problem: problem})
		case problem != "" && e.Problem != problem && h == nil:
			i.board.Post(name, Answer{Problem: problem})
		}
	}
}

// obtain asks for a certificate and checks the answer.
func (i *Issued) obtain(ctx context.Context) result {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	key, err := i.newKey()
	if err != nil {
		return result{err: fmt.Errorf("making a key: %w", err)}
	}
	csr, err := i.csr(key)
	if err != nil {
		return result{err: fmt.Errorf("making a request for a certificate: %w", err)}
	}
	answer, err := i.o.Request(ctx, csr, i.o.Valid)
	if err != nil {
		return result{err: fmt.Errorf("the certificate authority gives no certificate: %w", err)}
	}
	h, err := i.check(answer, key, i.now())
	if err != nil {
		return result{err: fmt.Errorf("what the certificate authority answers is not used: %w", err)}
	}
	return result{held: h}
}

func (i *Issued) newKey() (crypto.Signer, error) {
	if i.o.RSABits > 0 {
		return rsa.GenerateKey(rand.Reader, i.o.RSABits)
	}
	return ecdsa.GenerateKey(i.o.Curve, rand.Reader)
}

func (i *Issued) csr(key crypto.Signer) (string, error) {
	account := i.o.Account
	if account == "" {
		account = "default"
	}
	id := &url.URL{Scheme: "spiffe", Host: i.o.TrustDomain, Path: "/ns/" + i.o.Namespace + "/sa/" + account}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id}}, key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

// check checks an answer, and builds secrets from it.
func (i *Issued) check(answer []string, key crypto.Signer, now time.Time) (*held, error) {
	var certs, roots []*x509.Certificate
	for _, text := range answer {
		for rest := []byte(text); ; {
			var b *pem.Block
			if b, rest = pem.Decode(rest); b == nil {
				break
			}
			c, err := x509.ParseCertificate(b.Bytes)
			switch {
			case err != nil:
				return nil, fmt.Errorf("a certificate in it cannot be read: %w", err)
			case len(certs) > 0 && c.IsCA && c.CheckSignatureFrom(c) == nil:
				roots = append(roots, c)
			default:
				certs = append(certs, c)
			}
		}
	}
	if len(certs) == 0 || len(roots) == 0 {
		return nil, fmt.Errorf("it has %d certificates and %d roots", len(certs), len(roots))
	}
	leaf := certs[0]
	if err := i.checkLeaf(leaf, key, now); err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	for _, r := range roots {
		trusted.AddCert(r)
	}
	if err := verify(certs, trusted, now); err != nil {
		return nil, fmt.Errorf("its roots do not vouch for the certificate: %w", err)
	}
	// Roots restored from files are no evidence of what the mesh trusts: the machine may have been off since they were written.
	if old := i.held.Load(); old != nil && !old.restored && now.Before(old.pair.Leaf.NotAfter) {
		known := x509.NewCertPool()
		known.AppendCertsFromPEM(old.roots)
		if err := verify(certs, known, now); err != nil {
			return nil, errors.New("its root is none of the roots that the mesh has trusted so far, so others would refuse the certificate; let the authority announce a new root before it signs")
		}
	}
	return i.hold(certs, roots, key, now)
}

// checkLeaf checks that a certificate is the requested one.
func (i *Issued) checkLeaf(leaf *x509.Certificate, key crypto.Signer, now time.Time) error {
	own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !own.Equal(leaf.PublicKey) {
		return errors.New("the certificate is for another key")
	}
	switch {
	case !now.Before(leaf.NotAfter):
		return fmt.Errorf("the certificate has expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s; set the clocks", leaf.NotBefore.UTC().Format(time.RFC3339))
	case len(leaf.URIs) != 1:
		return fmt.Errorf("the certificate names %d identities", len(leaf.URIs))
	}
	id := leaf.URIs[0].String()
	within := "/ns/" + i.o.Namespace + "/sa/"
	at := strings.Index(id, within)
	if at < 0 || i.o.Account != "" && id[at+len(within):] != i.o.Account {
		return fmt.Errorf("the certificate is of %q, and this workload has the service account %q in the namespace %q", id, i.o.Account, i.o.Namespace)
	}
	return nil
}

func verify(certs []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// hold builds secrets from the checked parts of an answer.
func (i *Issued) hold(certs, roots []*x509.Certificate, key crypto.Signer, now time.Time) (*held, error) {
	keyPEM, err := i.encodeKey(key)
	if err != nil {
		return nil, err
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: certs[0]}
	var chain []byte
	for _, c := range certs {
		pair.Certificate = append(pair.Certificate, c.Raw)
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})...)
	}
	h := &held{pair: pair, answers: map[string]Answer{}}
	for _, c := range roots {
		h.roots = append(h.roots, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})...)
	}
	from := []string{"the certificate of the authority", "its key"}
	if h.answers[workload], err = makePair(workload, from, chain, keyPEM); err != nil {
		return nil, err
	}
	if h.answers[meshRoots], err = makeRoots(meshRoots, ofAuthority, h.roots, nil); err != nil {
		return nil, err
	}
	left := certs[0].NotAfter.Sub(now)
	h.renew = now.Round(0).Add(time.Duration(float64(left) * (1 - i.o.Grace + (mathrand.Float64()-0.5)/50))) //nolint:gosec // it keeps nothing secret
	return h, nil
}

func (i *Issued) encodeKey(key crypto.Signer) ([]byte, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if !i.o.PKCS8 {
			return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}), nil
		}
	case *ecdsa.PrivateKey:
		if !i.o.PKCS8 {
			der, err := x509.MarshalECPrivateKey(k)
			return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
		}
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}
