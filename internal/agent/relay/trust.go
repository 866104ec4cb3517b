package relay

import (
	"errors"
	"fmt"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	meshconfig "istio.io/api/mesh/v1alpha1"
)

// trustURL is the type of resource in which Istio's control plane sends agents trust bundles: a ProxyConfig with nothing else.
const trustURL = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// askForTrust asks for trust bundles.
func (s *session) askForTrust() error {
	if s.trust == nil {
		return nil
	}
	return s.sendOwn(question{typeURL: trustURL})
}

// takeTrust applies a trust bundle, or rejects it. The last good one stays in force then.
func (s *session) takeTrust(data []byte) error {
	u := s.dialect.update(data)
	if u == nil {
		return errors.New("the control plane sends a message that is no response")
	}
	var texts []string
	why := ""
	for _, r := range u.resources {
		var c meshconfig.ProxyConfig
		if err := r.GetResource().UnmarshalTo(&c); err != nil {
			why = fmt.Sprintf("the trust bundle is no ProxyConfig: %v", err)
		}
		texts = append(texts, c.GetCaCertificatesPem()...)
	}
	if why == "" {
		if err := s.trust(texts); err != nil {
			why = err.Error()
		}
	}
	if why == "" {
		s.trusted = u.version
		s.log.Info("a trust bundle is in force", "entries", len(texts))
	} else {
		s.log.Warn("a trust bundle of the control plane cannot be used; the last good one stays in force", "error", why)
	}
	return s.sendOwn(question{typeURL: trustURL, nonce: u.nonce, version: s.trusted, failure: reject(why)})
}

// reject is the error with which a response is rejected; nil if it is accepted.
func reject(why string) *rpcstatus.Status {
	if why == "" {
		return nil
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: why}
}
