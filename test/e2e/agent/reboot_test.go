package agent

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// machine is an agent that keeps its certificate in a folder, and whose token is not renewed.
type machine struct {
	*lonely
	certs, tokenFile string
}

func newMachine(t *testing.T) *machine {
	l := &lonely{bed: newBed(t), node: testbed.Node{Name: "app", Namespace: "shop"}, dir: t.TempDir()}
	l.TLSOnly()
	l.serve()
	l.options = l.certified("app")
	m := &machine{lonely: l, certs: filepath.Join(t.TempDir(), "certs")}
	l.options.Env = append(l.options.Env, "OUTPUT_CERTS="+m.certs, "PROV_CERT="+m.certs)
	for _, arg := range l.options.Args {
		if file, ok := strings.CutPrefix(arg, "--tokenFile="); ok {
			m.tokenFile = file
		}
	}
	l.node.Discovery = l.Secure
	return m
}

// renewToken writes a token that is valid for some time.
func (m *machine) renewToken(valid time.Duration) {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), controlBinary, "token", "create", "--stateDir="+m.StateDir, "--service-account=shop/app", "--expiration="+valid.String())
	token, err := cmd.Output()
	if err == nil {
		err = os.WriteFile(m.tokenFile, token, 0o600)
	}
	if err != nil {
		m.Fatal(err)
	}
}

// certificate waits until the machine keeps another certificate than the one given.
func (m *machine) certificate(than []byte) (c *x509.Certificate, text []byte) {
	m.Helper()
	m.await("another certificate", func(context.Context) (err error) {
		if text, err = os.ReadFile(filepath.Join(m.certs, "cert-chain.pem")); err != nil {
			return err
		}
		if bytes.Equal(text, than) {
			return fmt.Errorf("it is still the same")
		}
		block, _ := pem.Decode(text)
		c, err = x509.ParseCertificate(block.Bytes)
		return err
	})
	return c, text
}

// passed waits until a time is over.
func (m *machine) passed(at time.Time) {
	m.Helper()
	m.await("the end of "+at.String(), func(context.Context) error {
		if left := time.Until(at); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
}

// TestReboot: a machine whose token has expired is a member of the mesh again after a reboot, by the certificate that it keeps; it serves
// with that while the control plane is gone, too. If the certificate has expired as well, it says what to do, and recovers by that.
func TestReboot(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.stored()
	_, first := m.certificate(nil)
	m.End(syscall.SIGTERM)
	m.Discovery.Kill()
	m.renewToken(time.Second)
	m.passed(time.Now().Add(time.Second))

	took := m.start()
	t.Logf("the first answer came after %v", took)
	m.probed("ready, but stale: ")
	m.says(m.Agent, "the certificate of the workload is kept")
	m.Env = []string{"MAX_WORKLOAD_CERT_TTL=4s", "DEFAULT_WORKLOAD_CERT_TTL=4s"}
	m.serve()
	m.shows(m.Agent, "certificate", 1)
	if n := m.shown(m.Agent, "token"); n > 0 {
		t.Errorf("the expired token was shown %d times", n)
	}
	m.certificate(first)
	m.answers()
	m.End(syscall.SIGTERM)

	last, _ := m.certificate(nil)
	m.passed(last.NotAfter)
	m.start()
	m.says(m.Agent, "its certificate has expired at ")
	m.says(m.Agent, "write a new one there (pilotctl workload entry configure")
	m.renewToken(time.Hour)
	m.shows(m.Agent, "certificate", 1) // which the authority has issued for the token
	if text := m.log(m.Agent); strings.Contains(text, "PRIVATE KEY") {
		t.Error("the log has a key")
	}
}

// TestOtherMesh: a machine whose certificate is of a mesh that is no more shows its token, although it would show the certificate first.
func TestOtherMesh(t *testing.T) {
	m := newMachine(t)
	m.start()
	_, first := m.certificate(nil)
	m.End(syscall.SIGTERM)
	m.Discovery.Kill()
	files, err := os.ReadDir(m.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.Name() == "token-key.pem" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(m.StateDir, file.Name())); err != nil {
			t.Fatal(err)
		}
	}
	m.serve()
	m.start()
	m.certificate(first)
	m.shows(m.Agent, "certificate", 1)
}
