package rejection

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
)

// big is a value that is too long for a header.
func big() string { return strings.Repeat("a", 20000) }

// dumped is the error text of Envoy 1.40 about a route configuration with a header value that is too long.
func dumped() string {
	return "goo.gle/debugstr   \nname: \"31130\"\nvirtual_hosts {\n  request_headers_to_add {\n    header {\n      key: \"x-big\"\n      value: \"" + big() + "\"\n    }\n  }\n}\n" +
		": Proto constraint validation failed (RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by " +
		"VirtualHostValidationError.RequestHeadersToAdd[0]: embedded message failed validation | caused by HeaderValueOptionValidationError.Header: " +
		"embedded message failed validation | caused by HeaderValueValidationError.Value: value length must be at most 16384 bytes)"
}

func TestCause(t *testing.T) {
	const violation = "Routes[0].Match: value is required"
	for name, c := range map[string]struct{ reason, violation, want string }{
		"behind a dump": {dumped(), "", "VirtualHosts[0].RequestHeadersToAdd[0].Header.Value: value length must be at most 16384 bytes"},
		"before a dump": {"Proto constraint validation failed (RouteValidationError.Match: value is required): name: \"a (b\"\n", "", "Match: value is required"},
		"reason with parentheses": {"Proto constraint validation failed (AValidationError.B: value must be in list (a, b)): x", "",
			"B: value must be in list (a, b)"},
		"other cause behind a dump":  {"goo.gle/debugproto  \nname: \"a: b\"\n}\n: Only a single wildcard domain is permitted", "", "Only a single wildcard domain is permitted"},
		"text before the dump":       {"Error adding listener(s) a: goo.gle/debugonly \nname: \"a\"\n}\n: address is in use", "", "Error adding listener(s) a: address is in use"},
		"cut off":                    {dumped()[:4000] + "...(truncated)", violation, violation},
		"cut off, and nothing found": {dumped()[:4000] + "...(truncated)", "", "the cause was cut off from the message of the proxy; the log of its Envoy has it"},
		"cut off in the cause":       {"Proto constraint validation failed (RouteValidationError.Mat...(truncated)", violation, violation},
		"plain":                      {" invalid perl operator: (?=\n", violation, "invalid perl operator: (?="},
		"lines":                      {"a: x\nb: y", "", "a: x b: y"},
	} {
		if got := Cause(c.reason, c.violation); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := Cause(strings.Repeat("ä", maxCause), ""); len(got) > maxCause+3 || strings.ContainsRune(got, '�') {
		t.Errorf("a long cause is %d bytes: %q", len(got), got)
	}
}

func header(value string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: "v", Domains: []string{"*"}, RequestHeadersToAdd: []*corev3.HeaderValueOption{
		{Header: &corev3.HeaderValue{Key: "x-small", Value: "a"}}, {Header: &corev3.HeaderValue{Key: "x-big", Value: value}},
	}}
}

// objects are a ServiceEntry, and a VirtualService that sets two headers and matches by an expression.
func objects() []*api.Object {
	const host = "reviews.shop"
	return []*api.Object{
		{Key: api.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "reviews"}, Spec: &networking.ServiceEntry{Hosts: []string{host}}},
		{Key: api.Key{Kind: "VirtualService", Namespace: "shop", Name: "reviews"}, Spec: &networking.VirtualService{
			Hosts: []string{host}, Http: []*networking.HTTPRoute{{
				Match:   []*networking.HTTPMatchRequest{{Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: "/[a-z]{200}"}}}},
				Headers: &networking.Headers{Request: &networking.Headers_HeaderOperations{Add: map[string]string{"x-big": big(), "x-small": "a"}}},
			}},
		}},
	}
}

// TestFind checks which object and field a rejection is about.
func TestFind(t *testing.T) {
	const bigHeader = "spec.http[0].headers.request.add[x-big]"
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{
		RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{header(big())}},
	}, StatPrefix: "a"})
	if err != nil {
		t.Fatal(err)
	}
	packed := &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
		{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}},
	}}}}
	const broken = "RequestHeadersToAdd[1].Header.Value: value length must be at most 16384 bytes"
	for name, c := range map[string]struct {
		reason           string
		content          proto.Message
		field, violation string
	}{
		"cut off":           {dumped()[:4000] + "...(truncated)", header(big()), bigHeader, broken},
		"complete":          {dumped(), header(big()), bigHeader, broken},
		"in an Any":         {"goo.gle/debugonly ...(truncated)", packed, bigHeader, "RouteConfig.VirtualHosts[0]." + broken},
		"quoted":            {"regex '/[a-z]{200}' RE2 program size of 406 > max program size of 100 set for the error level threshold.", header("a"), "spec.http[0].match[0].uri.regex", ""},
		"both objects fit":  {"duplicate domain 'reviews.shop'", header("a"), "", ""},
		"no object fits":    {"cannot bind '127.0.0.1:80': Address already in use", nil, "", ""},
		"nothing is quoted": {"no", header("a"), "", ""},
	} {
		f := Find(c.reason, c.content, objects())
		if f.Field != c.field || f.Violation != c.violation || (f.Object.Kind == "VirtualService") != (c.field != "") || len(f.Objects) != 2 {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}
