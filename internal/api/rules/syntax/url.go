package syntax

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// ModuleURL checks the address of a module of WebAssembly. A text without a scheme is the reference of an image.
func ModuleURL(s string) string {
	const form = "write an address like oci://registry.example.com/filter:1.0, https://example.com/filter.wasm or file:///opt/filter.wasm"
	u, err := url.ParseRequestURI(s)
	if err != nil && !strings.Contains(s, "://") {
		u, err = url.ParseRequestURI("http://" + s)
		if err == nil && strings.ContainsAny(s, " \t") {
			return fmt.Sprintf("%s has a blank; %s", document.Quote(s), form)
		}
	}
	switch {
	case err != nil:
		return fmt.Sprintf("%s is not an address; %s", document.Quote(s), form)
	case !slices.Contains([]string{"", "http", "https", "file", "oci"}, u.Scheme):
		return fmt.Sprintf("%s has the scheme %s; %s", document.Quote(s), u.Scheme, form)
	}
	if port := u.Port(); port != "" {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Sprintf("%s: the port must be a number from 1 to 65535", document.Quote(s))
		}
	}
	return ""
}
