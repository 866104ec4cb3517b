package authz

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// tokens is a translated RequestAuthentication.
type tokens struct {
	key     api.Key
	issuers []issuer
	// broken is true if the translation failed because of a bug.
	broken bool
	hash   omap.Hash
}

// issuer is an issuer of tokens. required is true if every request must have one of its tokens.
type issuer struct {
	provider *jwtv3.JwtProvider
	required bool
	// address is where proxies may fetch the keys; empty if they have them in provider. timeout bounds how long they wait.
	address string
	timeout time.Duration
}

// OutputName implements query.Output.
func (t *tokens) OutputName() string { return t.key.String() }

// ContentHash implements omap.Value.
func (t *tokens) ContentHash() omap.Hash { return t.hash }

// Size implements omap.Value.
func (t *tokens) Size() int { return 0 }

// translateTokens is the translation of one RequestAuthentication.
func (q *Queries) translateTokens(r *query.Reader, k api.Key) ([]*tokens, bool) {
	row, ok := q.tables.Security.Authentications.Get(r, k)
	if !ok {
		return nil, false
	}
	t := &tokens{key: k}
	parts := [][]byte{row.Hash[:]}
	for _, rule := range row.Spec.GetJwtRules() {
		keys := rule.GetJwks()
		address, only, _ := q.tables.Security.FetchedByProxy(rule)
		if source, fetched := policies.KeySourceOf(rule); fetched && !only {
			set, _ := q.tables.Security.KeySets.Get(r, source)
			keys = set.Keys
			parts = append(parts, []byte(fmt.Sprintf("%q", keys)))
		}
		t.issuers = append(t.issuers, issuer{
			provider(rule, usable(keys)), rule.GetPresence() == security.JWTRule_REQUIRED,
			address, cmp.Or(rule.GetTimeout().AsDuration(), fetchTimeout),
		})
	}
	t.hash = omap.Sum(parts...)
	return []*tokens{t}, true
}

// usable returns a key set that Envoy takes: it rejects the listener if a set is empty.
func usable(keys string) string {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal([]byte(keys), &set); keys == "" || err == nil && set.Keys != nil && len(*set.Keys) == 0 {
		return mesh.NoKeys
	}
	return keys
}

// provider says how tokens of an issuer are found and verified, and what becomes of them.
func provider(rule *security.JWTRule, keys string) *jwtv3.JwtProvider {
	p := &jwtv3.JwtProvider{
		Issuer: rule.Issuer, Audiences: rule.Audiences, Forward: rule.ForwardOriginalToken,
		FromParams: rule.FromParams, FromCookies: rule.FromCookies, ForwardPayloadHeader: rule.OutputPayloadToHeader,
		PayloadInMetadata: payloadMetadata,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{
			SpaceDelimitedClaims: append([]string{"permission", "scope"}, slices.DeleteFunc(slices.Clone(rule.SpaceDelimitedClaims), func(claim string) bool {
				return claim == "permission" || claim == "scope"
			})...),
		},
		JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: keys}}},
	}
	for _, h := range rule.FromHeaders {
		p.FromHeaders = append(p.FromHeaders, &jwtv3.JwtHeader{Name: h.Name, ValuePrefix: h.Prefix})
	}
	for _, out := range rule.OutputClaimToHeaders {
		p.ClaimToHeaders = append(p.ClaimToHeaders, &jwtv3.JwtClaimToHeader{HeaderName: out.Header, ClaimName: out.Claim})
	}
	return p
}

// tokenFilters make the filter that verifies tokens; none if no RequestAuthentication applies.
func (q *Queries) tokenFilters(r *query.Reader, k Key) []*hcmv3.HttpFilter {
	var list []issuer
	for _, t := range q.tokens.Get(r, k.Policies).All() {
		if t.broken {
			return denyAll(becauseOfBug).HTTP
		}
		list = append(list, t.issuers...)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b issuer) int { return strings.Compare(a.provider.Issuer, b.provider.Issuer) })
	for i, of := range list {
		list[i].provider = q.fetching(r, k, of)
		if k.Gateway {
			list[i].provider = proto.CloneOf(list[i].provider)
			list[i].provider.ClearRouteCache = true
		}
	}
	providers, required := verify(list)
	return []*hcmv3.HttpFilter{envoy.HTTPFilter(jwtMetadata, &jwtv3.JwtAuthentication{
		Providers: providers, BypassCorsPreflight: true,
		Rules: []*jwtv3.RequirementRule{{
			Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			RequirementType: &jwtv3.RequirementRule_Requires{Requires: required},
		}},
	})}
}

// Times of proxies that fetch keys.
const (
	// fetchTimeout is how long a proxy waits for keys unless a rule says otherwise, and fetchedFor how long it uses them before it asks
	// again. Both are Istio's.
	fetchTimeout = 5 * time.Second
	fetchedFor   = 5 * time.Minute
)

// fetching lets a proxy fetch the keys of an issuer, if that is wanted and the proxy sees the service that has them. It asks again in the
// background, so that no request waits, and keeps the keys that it has if no server answers.
func (q *Queries) fetching(r *query.Reader, k Key, of issuer) *jwtv3.JwtProvider {
	if of.address == "" {
		return of.provider
	}
	at, trouble := q.scope.KeyServer(r, k.Hosts, of.address)
	if trouble != "" {
		return of.provider
	}
	p := proto.CloneOf(of.provider)
	p.JwksSourceSpecifier = &jwtv3.JwtProvider_RemoteJwks{RemoteJwks: &jwtv3.RemoteJwks{
		HttpUri: &corev3.HttpUri{
			Uri: of.address, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: envoy.OutboundCluster(at.Port, "", at.Host)}, Timeout: durationpb.New(of.timeout),
		},
		CacheDuration: durationpb.New(fetchedFor), AsyncFetch: &jwtv3.JwksAsyncFetch{FastListener: true},
	}}
	return p
}

func providerName(i int) string { return fmt.Sprintf("origins-%d", i) }
