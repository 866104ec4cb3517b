package syntax

import "slices"

// IsCurve reports whether Envoy has a curve of this name.
func IsCurve(name string) bool {
	return slices.Contains([]string{"P-256", "P-384", "P-521", "X25519", "X25519MLKEM768"}, name)
}

// IsCipher reports whether Envoy has a cipher suite of this name for TLS 1.2.
func IsCipher(name string) bool {
	return slices.Contains([]string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
		"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA",
	}, name)
}
