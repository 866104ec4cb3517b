package route

import (
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"
)

// redirect answers with a redirect. What the rule does not set stays as in the request. port is the port of the request, and secure is true if it
// comes in TLS.
func redirect(in *networking.HTTPRedirect, port uint32, secure bool) *routev3.Route_Redirect {
	out := &routev3.RedirectAction{HostRedirect: in.Authority, ResponseCode: redirectCode(in.RedirectCode)}
	switch {
	case in.Uri != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: in.Uri}
	case in.PrefixRewrite != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: in.PrefixRewrite}
	}
	if in.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: in.Scheme}
	}
	switch p := in.RedirectPort.(type) {
	case *networking.HTTPRedirect_Port:
		out.PortRedirect = p.Port
	case *networking.HTTPRedirect_DerivePort:
		// Envoy cannot copy the port of the request. But this route is for one port, so it is known.
		if p.DerivePort == networking.HTTPRedirect_FROM_REQUEST_PORT {
			out.PortRedirect = port
		}
	}
	scheme := in.Scheme
	switch {
	case scheme != "":
	case secure:
		scheme = "https"
	default:
		scheme = "http"
	}
	if out.PortRedirect == 80 && scheme == "http" || out.PortRedirect == 443 && scheme == "https" {
		out.PortRedirect = 0 // clients leave out the default port of a scheme
	}
	return &routev3.Route_Redirect{Redirect: out}
}

func redirectCode(status uint32) routev3.RedirectAction_RedirectResponseCode {
	switch status {
	case http.StatusFound:
		return routev3.RedirectAction_FOUND
	case http.StatusSeeOther:
		return routev3.RedirectAction_SEE_OTHER
	case http.StatusTemporaryRedirect:
		return routev3.RedirectAction_TEMPORARY_REDIRECT
	case http.StatusPermanentRedirect:
		return routev3.RedirectAction_PERMANENT_REDIRECT
	}
	return routev3.RedirectAction_MOVED_PERMANENTLY
}

// directResponse answers in place of the backend.
func directResponse(in *networking.HTTPDirectResponse) *routev3.Route_DirectResponse {
	out := &routev3.DirectResponseAction{Status: in.Status}
	switch body := in.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: body.String_}}
	case *networking.HTTPBody_Bytes:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: body.Bytes}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: out}
}
