package accepted

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// requiredFields are fields without which an object makes little sense, by message.
func requiredFields() map[protoreflect.FullName][]string {
	return map[protoreflect.FullName][]string{
		"istio.networking.v1alpha3.VirtualService":                                   {"hosts", "http"},
		"istio.networking.v1alpha3.HTTPRoute":                                        {"route"},
		"istio.networking.v1alpha3.HTTPRouteDestination":                             {"destination"},
		"istio.networking.v1alpha3.RouteDestination":                                 {"destination"},
		"istio.networking.v1alpha3.TCPRoute":                                         {"route"},
		"istio.networking.v1alpha3.TLSRoute":                                         {"route", "match"},
		"istio.networking.v1alpha3.TLSMatchAttributes":                               {"sniHosts"},
		"istio.networking.v1alpha3.HTTPMirrorPolicy":                                 {"destination"},
		"istio.networking.v1alpha3.Destination":                                      {"host"},
		"istio.networking.v1alpha3.PortSelector":                                     {"number"},
		"istio.networking.v1alpha3.HTTPDirectResponse":                               {"status"},
		"istio.networking.v1alpha3.DestinationRule":                                  {"host", "trafficPolicy"},
		"istio.networking.v1alpha3.Subset":                                           {"name", "labels"},
		"istio.networking.v1alpha3.TrafficPolicy.PortTrafficPolicy":                  {"port"},
		"istio.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB.HTTPCookie": {"name"},
		"istio.networking.v1alpha3.ClientTLSSettings":                                {"mode"},
		"istio.networking.v1alpha3.Gateway":                                          {"selector", "servers"},
		"istio.networking.v1alpha3.Server":                                           {"port", "hosts"},
		"istio.networking.v1alpha3.Port":                                             {"number", "protocol", "name"},
		"istio.networking.v1alpha3.SidecarPort":                                      {"number", "protocol", "name"},
		"istio.networking.v1alpha3.ServicePort":                                      {"number", "protocol", "name"},
		"istio.networking.v1alpha3.ServiceEntry":                                     {"hosts", "ports", "resolution"},
		"istio.networking.v1alpha3.WorkloadEntry":                                    {"address"},
		"istio.networking.v1alpha3.WorkloadGroup":                                    {"template"},
		"istio.networking.v1alpha3.IstioEgressListener":                              {"hosts"},
		"istio.networking.v1alpha3.IstioIngressListener":                             {"port", "defaultEndpoint"},
		"istio.networking.v1alpha3.EnvoyFilter":                                      {"configPatches"},
		"istio.networking.v1alpha3.EnvoyFilter.EnvoyConfigObjectPatch":               {"applyTo", "patch"},
		"istio.networking.v1alpha3.EnvoyFilter.Patch":                                {"operation", "value"},
		"istio.security.v1beta1.RequestAuthentication":                               {"jwtRules"},
		"istio.security.v1beta1.JWTRule":                                             {"issuer"},
		"istio.security.v1beta1.JWTHeader":                                           {"name"},
		"istio.security.v1beta1.ClaimToHeader":                                       {"header", "claim"},
		"istio.security.v1beta1.AuthorizationPolicy":                                 {"rules"},
		"istio.security.v1beta1.Condition":                                           {"key", "values"},
		"istio.security.v1beta1.Rule.From":                                           {"source"},
		"istio.security.v1beta1.Rule.To":                                             {"operation"},
		"istio.telemetry.v1alpha1.AccessLogging":                                     {"providers"},
		"istio.telemetry.v1alpha1.ProviderRef":                                       {"name"},
		"istio.telemetry.v1alpha1.Metrics":                                           {"overrides"},
		"istio.telemetry.v1alpha1.Tracing":                                           {"providers"},
		"istio.extensions.v1alpha1.WasmPlugin":                                       {"url"},
		"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider":                           {"name"},
		"istio.networking.v1beta1.ProxyConfig":                                       {"environmentVariables"},
	}
}

// Texts that many fields have in common.
func hosts() []string {
	return []string{
		"a.shop.svc.cluster.local", "a.shop.svc.cluster.local", "b.shop.svc.cluster.local", "k.shop.svc.cluster.local", "d.example.com", "d.example.com",
		"t.example.com", "a", "b.shop", "*.example.com", "*.shop.svc.cluster.local", "new.example.com", "*", "10.9.0.1", "xn--bcher-kva.example.com", "*-x.example.com", "UPPER.example.com",
	}
}

func patterns() []string {
	return []string{
		"/a.*", ".*", "a|b", "[a-z]+", "^/x$", `\d{3}`, "(?i)abc", "(a|b)*c", "", "a{1000}", "(", "(?P<n>x)", `\pL+`, `\Qa.b\E`, "(?:x)", "[[:alpha:]]", `\C`, "(?s).", `\x{10FFFF}`, "é+",
		"(((a{10}){10}){9})", ".{900}", `[^\x00-\x{10FFFF}]`, `\z`, `\b`, "x**", `a\`, strings.Repeat("(a|b)", 200), "((((((((((x*)*)*)*)*)*)*)*)*)*)",
	}
}

func addresses() []string {
	return []string{
		"10.1.0.1", "10.1.0.3", "10.9.0.7", "2001:db8::1", "::1", "127.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.1", "d.example.com", "unix:///var/run/x.sock", "unix://@abstract", "169.254.169.254", "255.255.255.255", "fe80::1", "2001:DB8::1",
	}
}

func blocks() []string {
	return []string{
		"10.0.0.0/8", "10.1.0.1", "10.1.0.1/32", "0.0.0.0/0", "::/0", "2001:db8::/32", "10.1.2.3/16", "::ffff:10.0.0.0/104", "2001:db8::1", "fe80::1/128", "10.9.0.0/24", "1.2.3.4/0", "127.0.0.1/8",
	}
}

// odd are texts that many fields refuse, and that break things where they are accepted and should not be.
func odd() []string {
	return []string{
		"", " ", "a b", "*", "%", "%%", "%REQ(", "%REQ(x)%", "%START_TIME%", "%UNKNOWN%", "%FILTER_STATE(x)%", "%DYNAMIC_METADATA(a:b)%", "$", "${X}", "é☃", "日本", "\u0000", "\n", "a\r\nb: c", "\t", ":", ":path", "host", "Host", "a:b", "/", "//", "a/b",
		"0", "-1", ".", "..", "-", "_", "a.", ".a", "A", "{", "}", "[", "{}", "null", "true", "\\", "'", `"`, "a,b", "a=b", ";", "#", "?", "/a?b#c", "x-a", "X-Envoy-Internal", "content-length",
		"connection", "transfer-encoding", "\u007f", "\u0080", "\u2028", "\ufeff", strings.Repeat("a", 64), strings.Repeat("a", 254), strings.Repeat("b", 300), strings.Repeat("c", 5000), strings.Repeat("d", 20000),
	}
}

func headers() []string {
	return []string{"x-a", "x-b", "X-Upper", "user-agent", "cookie", ":authority", ":path", ":method", "host", "Host", "content-type", "content-length", "x_y", "connection", "te", "x-envoy-original-path", "authorization", ":scheme", ":status", "@request.auth.claims.sub", "@request.auth.claims[a][b]", "@request.auth.claims.a.b"}
}

func values() []string {
	return []string{"a", "b", "*", "a*", "*a", "10.0.0.0/8", "", "%REQ(x)%", "%", "%DOWNSTREAM_REMOTE_ADDRESS%", "a%b", "50%", "é", strings.Repeat("v", 300), "%PROTOCOL%%", "%REQ(:path):5%", "%CEL(request.path)%", "%START_TIME(%s)%", "%HOSTNAME%", "a\tb"}
}

// words are texts that may be good for a field, by its name, or by the names of its message and its own.
func words() map[string][]string {
	const jwks = `{"keys":[{"kty":"RSA","e":"AQAB","kid":"k","n":"xAE7eB6qugXyCAG3yhh7pkDkT65pHymX-P7KfIupjf59vsdo91bSP9C8H07pSAGQO1MV_xFj9VswgsCg4R6otmg5PV2He95lZdHtOcU5DXIg_pbhLdKXbi66GlVeK6ABZOUW3WYtnNHD-91gVuoeJT_DwtGGcp4ignkgXfkiEm4sw-4sfb4qdt5oLbyVpmW6x9cfa7vs2WTfURiCrBoUqgBo_-4WTiULmmHSGZHOjzwa8WtrtOQGsAFjIbno85jp6MnGGGZPYZbDAa_b3y5u-YpW7ypZrvD8BgtKVjgtQgZhLAGezMt0ua3DRrWnKqTZ0BJ_EyxOGuHJrLsn00fnMQ"}]}`
	labels := []string{"app", "version", "a.b/c", "istio", "x_y", "topology.kubernetes.io/zone"}
	labelValues := []string{"a", "v1", "v2", "", "ingressgateway", "b"}
	paths := []string{"/", "/a", "/a/", "/a*", "*/a", "*", "/{*}", "/{**}", "/a/{*}/b", "/a/{**}", "/A%20b", "/a?x", "/é", "//", "/a;b", "/..", "/{*}/{**}/x", "/%", "/{x}"}
	localities := []string{"r1/z1/s1", "r1/z1", "r1", "r1/*", "r2/z2/*", "*", "", "r1//s1", "é"}
	providers := []string{"log", "json", "als", "otellog", "zip", "otel", "dd", "prom", "ext-http", "ext-grpc", "none", "envoy", "sky", "stack", "otelhttp"}
	files := []string{"/etc/certs/a.pem", "/etc/certs/root.pem", "a.pem", "", "system"}
	return map[string][]string{
		"host": hosts(), "hosts": append(hosts(), "./*", "shop/*", "*/*", "shop/a.shop.svc.cluster.local", "~/*", "./a.example.com"), "sniHosts": hosts(), "authority": hosts(),
		"Operation.hosts": append(hosts(), "a.example.com:80", "*a", "a*"), "Operation.notHosts": append(hosts(), "*.a", "b*"),
		"subset": {"v1", "v2", "", "none"}, "Subset.name": {"v1", "v2", "v3"}, "labels[]": labels, "labels": labelValues, "matchLabels[]": labels, "matchLabels": labelValues,
		"sourceLabels[]": labels, "sourceLabels": labelValues, "selector[]": {"istio"}, "selector": {"ingressgateway"},
		"exact": {"/a", "a", "GET", "a.example.com", "", "é", "*"}, "prefix": {"/a", "/", "a", "", "/é", "*", "/a/"}, "regex": patterns(), "suffix": {"a", ".com", ""},
		"HTTPRewrite.uri": {"/b", "/", "b", "", "/é", "/a?b=c", "/%20", "/a#b"}, "uri": {"/b", "/", "b", "", "/%REQ(x)%", "/é", "%PREFIX()%", "/a?b"}, "RegexRewrite.match": patterns(), "rewrite": {`/\1`, `\0`, "/x", `\9`, `\`, "", "é"},
		"address": addresses(), "addresses": append(blocks(), addresses()...), "ipBlocks": blocks(), "notIpBlocks": blocks(), "remoteIpBlocks": blocks(), "notRemoteIpBlocks": blocks(),
		"destinationSubnets": blocks(), "sourceSubnet": blocks(), "bind": append(addresses(), "", "", "", "", "127.0.0.3"), "defaultEndpoint": {"127.0.0.1:8080", "0.0.0.0:9090", "[::1]:80", "unix:///x", ":8080", "127.0.0.1:0", "[::]:80", "unix://@x", ""},
		"exportTo": {".", "*", "shop", "other"}, "gateways": {"mesh", "mesh", "shop/gw", "gw", "other/gw", "gw-0"}, "protocol": {"HTTP", "HTTP", "HTTP2", "GRPC", "TCP", "TLS", "HTTPS", "MONGO", "REDIS", "MYSQL", "GRPC-WEB", "UDP", "HTTP_PROXY", "", "http"},
		"Port.name": {"http", "tcp", "p", "https", "tls"}, "ServicePort.name": {"http", "tcp", "p", "main"}, "port": {"80", "443", "0", "x"},
		"namespaces": {"shop", "other", "*", "s*"}, "notNamespaces": {"shop", "*op"}, "principals": {"cluster.local/ns/shop/sa/a", "*", "*/sa/a", "cluster.local/*", "é"}, "requestPrincipals": {"*", "iss/*", "iss/sub", "*/sub", "https://a.example.com/x", "/"}, "notRequestPrincipals": {"*", "iss/*"},
		"serviceAccounts": {"a", "shop/a", "other/b"}, "notServiceAccounts": {"a"}, "methods": {"GET", "POST", "*", "G*", "get"}, "paths": paths, "notPaths": paths, "ports": {"80", "443", "8080"}, "notPorts": {"80", "0"},
		"Condition.key": {
			"request.headers[x-a]", "request.headers[:path]", "request.headers[Host]", "source.ip", "remote.ip", "source.namespace", "source.principal", "request.auth.principal", "request.auth.audiences", "request.auth.presenter", "request.auth.claims[a]", "request.auth.claims[a][b]",
			"destination.ip", "destination.port", "connection.sni", "experimental.envoy.filters.network.mysql_proxy[db.table]", "experimental.envoy.filters.x[a]", "source.serviceAccount", "request.headers[]", "experimental.envoy.filters.a.b[c][d]",
		},
		"values": append(append(values(), blocks()...), "80", "cluster.local/ns/shop/sa/a", "shop", "[a]"), "notValues": append(append(values(), blocks()...), "80"),
		"issuer": {"iss", "https://a.example.com", "a@b", "é"}, "audiences": {"a", "", "b"}, "jwks": {jwks, jwks, `{"keys":[]}`, "{}", "x", jwks + " ", `[]`, `{"keys":[{"kty":"oct","k":"YQ"}]}`, `{"keys":[{"kty":"EC"}]}`}, "jwksUri": {"https://a.example.com/k", "http://a.shop.svc.cluster.local/k", "x", "https://d.example.com:8443/k?x"},
		"fromParams": {"token", "", "a b"}, "fromCookies": {"c", "a b"}, "JWTHeader.name": headers(), "JWTHeader.prefix": {"Bearer ", "", "x"}, "outputPayloadToHeader": headers(), "ClaimToHeader.header": headers(), "claim": {"sub", "a.b", "a", "é", "a..b"},
		"expression":       {"response.code >= 400", "true", "request.path == '/'", "has(request.headers)", "'x' in request.headers", "x", "1 +", "request.path.startsWith('/a')", "size(request.path) > 3 ? true : false", "request.headers['a'].split(',')[0] == 'x'", "connection.mtls", "xds.node.id", "int(response.code)", "metadata.filter_metadata['a']", "timestamp('2020-01-01T00:00:00Z') < request.time", "request.path.matches('(')", "[1,2].exists(x, x == 1)", "string(request.time)", "request.path + 'a' == 'b'", "request.size", "response.flags", "1/0", "{}"},
		"ProviderRef.name": providers, "ExtensionProvider.name": append(providers, "p1", "p2"), "provider": providers, "url": {"https://a.example.com/x.wasm", "oci://a.example.com/x:1", "x", "http://a"}, "sha256": {"", strings.Repeat("a", 64)},
		"service": {"a.shop.svc.cluster.local", "d.example.com", "shop/a.shop.svc.cluster.local", "none.example.com", "t.example.com"}, "locality": localities, "from": localities, "to": localities, "to[]": localities, "failoverPriority": {"topology.kubernetes.io/region", "app", "app=a", "version", ""},
		"name": {"a", "b", "p", "x-a", "v1"}, "HTTPCookie.name": {"c", "é", "a b", "a;b", "a=b"}, "HTTPCookie.path": {"/", "", "/a", "a;b", "é"}, "httpHeaderName": headers(), "httpQueryParameterName": {"q", "", "a b", "é"},
		"set[]": headers(), "set": values(), "add[]": headers(), "add": values(), "remove": headers(), "headers[]": headers(), "withoutHeaders[]": headers(), "HTTPMatchRequest.headers[]": headers(), "queryParams[]": {"q", "", "a b", "é"}, "allowHeaders": headers(), "exposeHeaders": headers(), "allowMethods": {"GET", "*", "x y"}, "allowOrigin": {"*", "https://a", "é"},
		"retryOn": {"5xx", "gateway-error,503", "connect-failure", "retriable-status-codes", "retriable-headers", "x", "", "503,599", "1000", "5xx,,reset", " 5xx", "http3-post-connect-failure"},
		"sni":     {"a.example.com", "", "é", "a b"}, "subjectAltNames": {"a.example.com", "spiffe://cluster.local/ns/shop/sa/a", "é", "*.example.com"}, "verifyCertificateSpki": {"NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A=", "x"}, "verifyCertificateHash": {strings.Repeat("a", 64), strings.Repeat("AA:", 31) + "AA", "x"},
		"cipherSuites": {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "AES128-SHA", "x", "TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "ALL"}, "ecdhCurves": {"P-256", "X25519", "x", "X25519MLKEM768", "P-521"}, "credentialName": {"cred", "kubernetes://cred", "", "shop/cred", "cred-cacert", "builtin://"}, "credentialNames": {"cred", "cred2", "cred3"}, "caCertCredentialName": {"cred-cacert", "ca"},
		"clientCertificate": files, "privateKey": files, "serverCertificate": files, "caCertificates": files, "caCrl": {""}, "tunnelProtocol": {"CONNECT", "POST", "x"}, "Tunnel.protocol": {"CONNECT", "POST", ""}, "targetHost": {"d.example.com", "10.1.1.1", "::1", "é"},
		"statPrefix": {"s", "%", "a.b"}, "url.path": paths, "httpRedirect.uri": paths, "scheme": {"https", "http", "x", ""}, "string": {"body", "", "é", "%REQ(x)%", "a%b"}, "proxyVersion": patterns(), "portName": {"http"}, "portNumber": {"80"}, "route.name": {"a"},
		"headersToUpstreamOnAllow": append(headers(), "x-*", "*"), "headersToDownstreamOnDeny": headers(), "headersToDownstreamOnAllow": headers(), "includeRequestHeadersInCheck": append(headers(), "x-*"), "includeAdditionalHeadersInCheck[]": headers(), "includeAdditionalHeadersInCheck": values(), "pathPrefix": paths, "statusOnError": {"403", "503", "0", "x", "600"},
		"EnvoyFileAccessLog.path": {"/dev/stdout", "/dev/null", "/dev/stderr", "", "a"}, "text": append(values(), "%REQ(x)% %RESPONSE_CODE%\n"), "accessLogFormat": append(values(), "{}", "[%START_TIME%] %REQ(:METHOD)%\n"), "accessLogFile": {"/dev/null", "/dev/stdout", ""},
		"collectorService": {"a.shop.svc.cluster.local"}, "zipkin.address": {"a.shop:9411", "d.example.com:9411", "x", "$(HOST_IP):9411", "[::1]:80"}, "http.path": paths, "trustDomain": {"cluster.local", "td.example.com", "é"}, "trustDomainAliases": {"old", "cluster.local"}, "rootNamespace": {"istio-system", "shop"},
		"environmentVariables[]": {"A", "ISTIO_META_X", ""}, "UPSERT": {}, "TagOverride.value": {"request.host", "response.code", "'a'", "1 +", "request.headers['x']", "string(response.code)", "node.metadata['x']", "upstream_peer.labels['app'].value", "request.path.split('/')[1]", "request.method + 'a'"}, "tagOverrides[]": {"destination_port", "request_host", "source_app", "a-b", "é", "response_code", ""},
		"inlineCode":   {"function envoy_on_request(h) end", "", " ", "local x = 1"},
		"customTags[]": {"a", "b.c", "é", ""}, "Environment.name": {"HOME", "", "é"}, "RequestHeader.name": headers(), "Literal.value": values(), "Formatter.value": append(values(), "%RESPONSE_CODE%"), "defaultValue": values(),
	}
}
