package clustertest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// StartSigner starts a controller that signs the approved requests for a signer's name until the test ends, as cert-manager and others do.
// It returns the root of the signer as PEM.
func StartSigner(t testing.TB, api kubernetes.Interface, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	requests := api.CertificatesV1().CertificateSigningRequests()
	w, err := requests.Watch(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			q, ok := e.Object.(*certificates.CertificateSigningRequest)
			if !ok || e.Type != watch.Modified || q.Spec.SignerName != name || len(q.Status.Conditions) == 0 || len(q.Status.Certificate) > 0 {
				continue
			}
			signed, err := sign(q, root, key)
			if err != nil {
				t.Errorf("the signer: %v", err)
				continue
			}
			q.Status.Certificate = signed
			if _, err := requests.UpdateStatus(context.WithoutCancel(t.Context()), q, meta.UpdateOptions{}); err != nil {
				t.Errorf("the signer: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		w.Stop()
		<-done
	})
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func sign(q *certificates.CertificateSigningRequest, root *x509.Certificate, key crypto.Signer) ([]byte, error) {
	block, _ := pem.Decode(q.Spec.Request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: csr.Subject, URIs: csr.URIs, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Duration(*q.Spec.ExpirationSeconds) * time.Second), KeyUsage: x509.KeyUsageDigitalSignature,
	}, root, csr.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}
