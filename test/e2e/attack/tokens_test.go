package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// one is the rule of the first issuer, with changes.
func (i *issuer) ruleOne(changes object) object {
	return both(object{"issuer": issuerURL, "jwks": keySet(i.one)}, changes)
}

func (i *issuer) ruleTwo(changes object) object {
	return both(object{"issuer": otherURL, "jwks": keySet(i.two)}, changes)
}

// bearer is a request with a token.
func bearer(token string) hit {
	return get("/").with("Authorization", "Bearer "+token).silent()
}

// claiming is a request with a good token, and the question for can-i.
func (i *issuer) claiming(changes object) hit {
	h := bearer(i.token(changes))
	h.claims, h.unasked = asJSON(claims(changes)), false
	return h
}

func subjects(names ...string) policy {
	return authorize("ALLOW", from(object{"requestPrincipals": names}))
}

// TestTokens: forged, odd and expired tokens, where only one subject may call.
func TestTokens(t *testing.T) {
	b := enter(t)
	i := b.tokens
	b.play(t, scene{name: "a subject", policies: []policy{tokensOf(i.ruleOne(nil)), subjects(issuerURL + "/user")}, attacks: join(i.forgeries(), i.odd(), i.claimed(), i.cut())})
}

func (i *issuer) forgeries() []attack {
	head := func(more object) object { return both(object{"alg": "RS256", "kid": "a"}, more) }
	by := func(k string, head object) hit {
		key := i.one
		if k == "evil" {
			key = i.evil
		}
		return bearer(signed(key, head, asJSON(claims(nil))))
	}
	list := []attack{
		{"good", i.claiming(nil), reached}, {"none", get("/"), refused}, {"another subject", i.claiming(object{"sub": "other"}), refused},
		{"another key", by("evil", head(nil)), refused}, {"another key without its name", by("evil", object{"alg": "RS256"}), refused},
		{"its own key in the token", by("evil", head(object{"jwk": jwk(i.evil)})), refused}, {"a URL of keys in the token", by("evil", head(object{"jku": fmt.Sprintf("http://%s:%d/evil", attacker, keysPort)})), refused},
		{"a path as the key's name", by("evil", object{"alg": "RS256", "kid": "../../dev/null"}), refused}, {"the good key under another name", by("", object{"alg": "RS256", "kid": "zz"}), refused},
		{"the good key without its name", by("", object{"alg": "RS256"}), reached}, {"rs256", by("", object{"alg": "rs256", "kid": "a"}), refused}, {"RS512", by("", object{"alg": "RS512", "kid": "a"}), refused},
		{"PS256", by("", object{"alg": "PS256", "kid": "a"}), refused},
	}
	for _, alg := range []string{"none", "None", ""} {
		list = append(list, attack{fmt.Sprintf("no signature, algorithm %q", alg), bearer(unsigned(object{"alg": alg}, nil)), refused})
	}
	list = append(list, attack{"no algorithm", bearer(unsigned(object{}, nil)), refused})
	for what, secret := range map[string]string{"the public key": encode(i.one.N.Bytes()), "nothing": "", "the key set": keySet(i.one)} {
		list = append(list, attack{"HMAC by " + what, bearer(unsigned(object{"alg": "HS256", "kid": "a"}, []byte(secret))), refused})
	}
	return list
}

// odd are good signatures of odd claims.
func (i *issuer) odd() (list []attack) {
	now := time.Now().Unix()
	for what, changes := range map[string]object{
		"expired an hour ago": {"exp": now - 3600}, "expired 90 seconds ago": {"exp": now - 90}, "not valid yet": {"nbf": now + 999}, "an expiry in words": {"exp": fmt.Sprint(now + 99)},
		"a negative expiry": {"exp": -1}, "an issuer with a slash more": {"iss": issuerURL + "/"}, "an issuer in capitals": {"iss": "https://ISSUER.test"}, "an issuer with a blank": {"iss": issuerURL + " "},
		"a list of issuers": {"iss": []string{issuerURL}}, "no issuer": {"iss": nil}, "a list of subjects": {"sub": []string{"user"}}, "a number as the subject": {"sub": 1},
		"a subject with a slash": {"sub": "/user"}, "a subject in capitals": {"sub": "USER"}, "a subject with a zero byte": {"sub": "user\x00"}, "a subject with a blank": {"sub": "user "},
	} {
		list = append(list, attack{what, bearer(i.token(changes)), refused})
	}
	return list
}

// claimed are tokens whose claims Envoy may read in several ways.
func (i *issuer) claimed() []attack {
	now := time.Now().Unix()
	raw := func(text string) hit { return bearer(signed(i.one, object{"alg": "RS256", "kid": "a"}, text)) }
	return []attack{
		{"no object", raw("[]"), refused}, {"deep", raw(fmt.Sprintf(`{"iss":%q,"sub":"user","exp":%d,"x":%s%s}`, issuerURL, now+99, strings.Repeat("[", 3000), strings.Repeat("]", 3000))), either},
		{"long", bearer(i.token(object{"x": strings.Repeat("a", 40000)})), either}, {"longer than headers may be", bearer(i.token(object{"x": strings.Repeat("a", 100000)})), refused},
	}
}

// cut are tokens in pieces.
func (i *issuer) cut() []attack {
	good := i.token(nil)
	p := strings.Split(good, ".")
	return []attack{
		{"without its signature", bearer(p[0] + "." + p[1] + "."), refused}, {"two parts", bearer(p[0] + "." + p[1]), refused}, {"four parts", bearer(good + ".x"), refused},
		{"padding", bearer(p[0] + "." + p[1] + "==." + p[2]), refused}, {"a byte more", bearer(good + "A"), refused},
		{"another payload", bearer(p[0] + "." + encode([]byte(asJSON(claims(object{"x": 1})))) + "." + p[2]), refused}, {"nothing", bearer(""), refused}, {"garbage", bearer("a.b.c"), refused},
	}
}

// TestPlaces: good and forged tokens at the places where they are looked for, and at others.
func TestPlaces(t *testing.T) {
	b := enter(t)
	i := b.tokens
	good, evil := i.token(nil), i.forged(nil)
	preflight := get("/").by("OPTIONS").with("Origin", "x", "Access-Control-Request-Method", "GET")
	query := func(text string) hit { return get("/" + text).silent() }
	user := []policy{tokensOf(i.ruleOne(nil)), subjects(issuerURL + "/user")}
	needed := authorize("DENY", from(object{"notRequestPrincipals": []string{"*"}}))
	b.play(t,
		scene{name: "the usual places", policies: user, attacks: []attack{
			{"Basic", get("/").with("Authorization", "Basic "+good).silent(), refused}, {"a forged one in the query", query("?access_token=" + evil), refused}, {"a fragment", query("#access_token=" + good), refused},
			{"a preflight", preflight, refused}, {"a preflight with a forged one", preflight.with("Authorization", "Bearer "+evil).silent(), refused},
		}},
		scene{name: "a token, if any, must be good", policies: []policy{tokensOf(i.ruleOne(nil))}, attacks: []attack{{"none", get("/"), reached}, {"forged", bearer(evil), refused}}},
		scene{name: "everybody needs one", policies: []policy{tokensOf(i.ruleOne(nil)), needed}, attacks: []attack{
			{"none", get("/"), refused}, {"good", i.claiming(nil), reached}, {"forged", bearer(evil), refused}, {"an empty subject", bearer(i.token(object{"sub": ""})), refused}, {"a preflight", preflight, refused},
			{"bytes", line(), refused}, {"an unnamed port", get("/").at(unnamedPort), refused},
		}},
		scene{name: "required", policies: []policy{tokensOf(i.ruleOne(object{"presence": "REQUIRED"}))}, attacks: []attack{
			{"none", get("/"), refused}, {"good", bearer(good), reached}, {"forged", bearer(evil), refused}, {"an unnamed port", get("/").at(unnamedPort), refused},
		}},
		scene{name: "two issuers", policies: []policy{tokensOf(i.ruleOne(object{"fromCookies": []string{"tk"}})),
			tokensOf(i.ruleTwo(object{"fromParams": []string{"tok"}, "fromHeaders": []object{{"name": "x-jwt", "prefix": "Tok "}}})), subjects(issuerURL+"/user", otherURL+"/user")}, attacks: i.twoPlaces()},
	)
}

func (i *issuer) twoPlaces() []attack {
	good, two, evil := i.token(nil), i.second(), i.forged(nil)
	cookie := func(text string) hit { return get("/").with("Cookie", text).silent() }
	return []attack{
		{"a cookie", cookie("tk=" + good), reached}, {"a forged cookie", cookie("tk=" + evil), refused}, {"a second cookie", cookie("a=b; tk=" + good), reached}, {"a place of nobody", bearer(good), refused},
		{"a parameter", get("/?tok=" + two).silent(), reached}, {"a forged parameter", get("/?tok=" + i.forged(object{"iss": otherURL})).silent(), refused},
		{"the first issuer's at the second's place", get("/?tok=" + good).silent(), refused}, {"the second issuer's at the first's place", cookie("tk=" + two), refused},
		{"a header", get("/").with("x-jwt", "Tok "+two).silent(), reached},
	}
}

// TestSubjects: issuers and subjects that contain one another.
func TestSubjects(t *testing.T) {
	b := enter(t)
	i := b.tokens
	tenant := object{"issuer": issuerURL + "/t1", "jwks": keySet(i.two)}
	ofTenant := bearer(signed(i.two, object{"alg": "RS256", "kid": "a"}, asJSON(claims(object{"iss": issuerURL + "/t1", "sub": "admin"}))))
	var list []attack
	for sub, w := range map[string]want{"evil": refused, "x/evil": refused, "badder": refused, "bad\n": refused, "evil\n": either, "user": reached, "\nevil": either} {
		list = append(list, attack{fmt.Sprintf("%q", sub), i.claiming(object{"sub": sub}), w})
	}
	b.play(t,
		scene{name: "an issuer within another", policies: []policy{tokensOf(i.ruleOne(nil), tenant), subjects(issuerURL + "/t1/admin")}, attacks: []attack{
			{"the tenant's", ofTenant, reached}, {"the other issuer's, with a slash in the subject", i.claiming(object{"sub": "t1/admin"}), refused},
		}},
		scene{name: "denied subjects", policies: []policy{tokensOf(i.ruleOne(nil)), authorize("DENY", from(object{"requestPrincipals": []string{"*/evil", issuerURL + "/bad*"}}))}, attacks: list},
	)
}

// claimRow is a value of a claim, and whether it is enough.
type claimRow struct {
	claims object
	want   want
}

// TestClaims: values of claims that are one another's parts, lists and likeness.
func TestClaims(t *testing.T) {
	b := enter(t)
	i := b.tokens
	has := func(key string) policy { return authorize("ALLOW", when(is("request.auth.claims"+key, "admin"))) }
	play := func(name string, p policy, rows ...claimRow) {
		var list []attack
		for _, r := range rows {
			list = append(list, attack{asJSON(r.claims), i.claiming(r.claims), r.want})
		}
		b.play(t, scene{name: name, policies: []policy{tokensOf(i.ruleOne(nil)), p}, attacks: list})
	}
	play("groups", has("[groups]"), claimRow{object{"groups": "admin"}, reached}, claimRow{object{"groups": []string{"x", "admin"}}, reached}, claimRow{object{"groups": "x admin"}, refused},
		claimRow{object{"groups": "x,admin"}, refused}, claimRow{object{"groups": object{"admin": true}}, refused}, claimRow{object{"groups": []any{[]string{"admin"}}}, refused}, claimRow{nil, refused},
		claimRow{object{"groups": "Admin"}, refused}, claimRow{object{"Groups": "admin"}, refused}, claimRow{object{"groups": "admin\x00"}, refused})
	play("scope", has("[scope]"), claimRow{object{"scope": "x admin"}, reached}, claimRow{object{"scope": "xadmin"}, refused}, claimRow{object{"scope": []string{"admin"}}, reached},
		claimRow{object{"scope": "x\tadmin"}, either}, claimRow{object{"scope": "x,admin"}, refused}, claimRow{object{"scope": ""}, refused})
	play("nested", has("[a][b]"), claimRow{object{"a": object{"b": "admin"}}, reached}, claimRow{object{"a.b": "admin"}, refused}, claimRow{object{"a": object{"b": []string{"admin"}}}, reached},
		claimRow{object{"a": []object{{"b": "admin"}}}, refused}, claimRow{object{"a][b": "admin"}, refused}, claimRow{object{"a": "admin"}, refused})
	play("dots", has("[a.b/c]"), claimRow{object{"a.b/c": "admin"}, reached}, claimRow{object{"a": object{"b/c": "admin"}}, refused}, claimRow{object{"a": object{"b": object{"c": "admin"}}}, refused})
	play("DENY", authorize("DENY", when(is("request.auth.claims[groups]", "admin")), when(isNot("request.auth.claims[lvl]", "ok"), is("request.auth.claims[sub]", "*"))),
		claimRow{object{"groups": "admin", "lvl": "ok"}, refused}, claimRow{object{"groups": []string{"a", "admin"}, "lvl": "ok"}, refused}, claimRow{object{"groups": "x", "lvl": "ok"}, reached},
		claimRow{object{"groups": "x"}, refused}, claimRow{object{"lvl": []string{"ok", "bad"}}, either}, claimRow{object{"lvl": []string{"bad"}}, refused}, claimRow{object{"lvl": 5}, refused})
	play("presenter and audience", authorize("ALLOW", when(is("request.auth.presenter", "app"), is("request.auth.audiences", "api"), is("request.auth.principal", issuerURL+"/user"))),
		claimRow{object{"azp": "app", "aud": "api"}, reached}, claimRow{object{"azp": "app", "aud": []string{"x", "api"}}, reached}, claimRow{object{"azp": "app"}, refused}, claimRow{object{"aud": "api"}, refused},
		claimRow{object{"azp": "app", "aud": "api", "sub": "z"}, refused})
}

// TestAudiences: tokens for others.
func TestAudiences(t *testing.T) {
	b := enter(t)
	var list []attack
	for _, r := range []claimRow{
		{object{"aud": "api"}, reached}, {object{"aud": []string{"api"}}, reached}, {object{"aud": []string{"x", "api"}}, reached}, {object{"aud": "apix"}, refused}, {object{"aud": "API"}, refused},
		{object{"aud": ""}, refused}, {object{"aud": []string{}}, refused}, {nil, refused}, {object{"aud": []string{"x"}}, refused}, {object{"aud": "api "}, refused}, {object{"aud": "api/"}, either},
		{object{"aud": "https://api"}, either}, {object{"aud": object{"api": 1}}, refused}, {object{"aud": 1}, refused}, {object{"aud": "x,api"}, refused}, {object{"aud": "x api"}, refused},
	} {
		list = append(list, attack{asJSON(r.claims), b.tokens.claiming(r.claims), r.want})
	}
	b.play(t, scene{name: "an audience", policies: []policy{tokensOf(b.tokens.ruleOne(object{"audiences": []string{"api"}})), subjects("*")}, attacks: list})
}

// TestOutput: headers by which the application hears of a token, from outside.
func TestOutput(t *testing.T) {
	b := enter(t)
	i := b.tokens
	output := func(header, claim string) object { return object{"header": header, "claim": claim} }
	names := []string{"x-sub", "x-grp", "x-payload", "x-sub2"}
	var spoofs, upper []string
	for _, n := range names {
		spoofs, upper = append(spoofs, n, "root"), append(upper, strings.ToUpper(n), "root")
	}
	with := func(h hit) hit { return h.with(spoofs...).silent() }
	first := i.ruleOne(object{"outputPayloadToHeader": "x-payload", "outputClaimToHeaders": []object{output("x-sub", "sub"), output("x-grp", "groups")}})
	second := i.ruleTwo(object{"fromHeaders": []object{{"name": "x-two"}}, "outputClaimToHeaders": []object{output("x-sub2", "sub")}})
	list := []attack{
		{"no token", with(get("/")), either}, {"a token", with(bearer(i.token(nil))), either}, {"a token with the claim", with(bearer(i.token(object{"groups": "g"}))), either},
		{"the other issuer's", with(get("/").with("x-two", i.second())), either}, {"both", with(bearer(i.token(nil)).with("x-two", i.second())), either}, {"twice over HTTP/2", with(with(get2("/"))), either},
		{"a preflight", with(get("/").by("OPTIONS").with("Origin", "x", "Access-Control-Request-Method", "GET")), either}, {"in capitals", get("/").with(upper...).silent(), either},
		{"a list of groups", with(bearer(i.token(object{"groups": []string{"g"}}))), either}, {"lines in a subject", with(bearer(i.token(object{"sub": "a\r\nx-grp: root"}))), either},
	}
	for _, sub := range []string{"a\r\nx-role: root", "a\nx-role: root", "a\x00b", "\u00e9", "a,b", " a", ""} {
		list = append(list, attack{fmt.Sprintf("subject %q", sub), with(bearer(i.token(object{"sub": sub}))), either})
	}
	b.play(t, scene{name: "claims in headers", policies: []policy{tokensOf(first), tokensOf(second)}, attacks: list, forbidden: func(s *seen) bool {
		return len(s.values("x-role")) > 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(s.values(n), "root") })
	}})
}

// TestRidealong: a forged token never reaches the application beside a good one.
func TestRidealong(t *testing.T) {
	b := enter(t)
	i := b.tokens
	keep := object{"forwardOriginalToken": true}
	own := both(keep, object{"fromHeaders": []object{{"name": "x-jwt"}}})
	good, evil := i.token(nil), i.forged(object{"sub": "root"})
	attacks := []attack{
		{"good in the header, forged in the query", get("/?access_token="+evil).with("Authorization", "Bearer "+good).silent(), either},
		{"forged in the header, good in the query", get("/?access_token="+good).with("Authorization", "Bearer "+evil).silent(), either},
		{"its own header, forged and good", get("/").with("x-jwt", evil, "x-jwt", good).silent(), either}, {"its own header, good and forged", get("/").with("x-jwt", good, "x-jwt", evil).silent(), either},
		{"forged in the other issuer's header", get("/").with("x-jwt", good, "x-two", evil).silent(), either},
	}
	for name, p := range map[string]policy{
		"one issuer": tokensOf(i.ruleOne(keep)), "two issuers": tokensOf(i.ruleOne(keep), i.ruleTwo(keep)), "one issuer with a header of its own": tokensOf(i.ruleOne(own)),
		"two issuers with headers of their own": tokensOf(i.ruleOne(own), i.ruleTwo(object{"fromHeaders": []object{{"name": "x-two"}}})),
	} {
		// What no rule looks for is no token. A header named x-jwt or x-two is one where a rule names it.
		list := attacks
		if !strings.Contains(name, "own") {
			list = attacks[:2]
		} else if name == "one issuer with a header of its own" {
			list = attacks[2:4]
		}
		b.play(t, scene{name: name, policies: []policy{p, subjects("*")}, attacks: list, forbidden: func(s *seen) bool {
			return strings.Contains(fmt.Sprint(s.Line, s.Headers), evil)
		}})
	}
}

// TestKeys: keys that cannot be fetched verify nothing, and fetched keys are replaced.
func TestKeys(t *testing.T) {
	b := enter(t)
	i := b.tokens
	b.keys.put("/keys", "")
	rule := object{"issuer": issuerURL, "jwksUri": fmt.Sprintf("http://%s:%d/keys", attacker, keysPort)}
	b.play(t, scene{name: "keys are missing", policies: []policy{tokensOf(rule), subjects("*")}, attacks: []attack{
		{"a good token", bearer(i.token(nil)), refused}, {"a forged token", bearer(i.forged(nil)), refused}, {"no signature", bearer(unsigned(object{"alg": "none"}, nil)), refused}, {"garbage", bearer("a.b.c"), refused},
	}})
	b.keys.put("/keys", keySet(i.one))
	b.until(t, "a good token to be taken", bearer(i.token(nil)), reached)
	b.keys.put("/keys", keySet(i.two))
	b.until(t, "the old key to be refused", bearer(i.token(nil)), refused)
	b.keys.put("/keys", "no keys")
	b.until(t, "the new key to verify", bearer(signed(i.two, object{"alg": "RS256", "kid": "a"}, asJSON(claims(nil)))), reached)
	if o := b.strike(t.Context(), bearer(i.forged(nil))); o.reached() {
		t.Errorf("a forged token while the server of the keys is broken: %s", o)
	}
}
