package reply

import (
	"fmt"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"
)

// TokenAction is the action of RequestAuthentications in explanations.
const TokenAction = "TOKEN"

// Policy is a policy about requests to the workload.
type Policy struct {
	Object Ref `json:"object"`
	// Action is CUSTOM, AUDIT, DENY or ALLOW, or TOKEN for a RequestAuthentication.
	Action string `json:"action"`
	// Rules is the number of its rules. DryRun is true if it is only tried out.
	Rules  int  `json:"rules"`
	DryRun bool `json:"dry_run,omitempty"`
	// Provider is the external authorizer that it asks.
	Provider string `json:"provider,omitempty"`
	// Issuers are the issuers of tokens.
	Issuers []Issuer `json:"issuers,omitempty"`
	// Denies says why it denies the requests that it matches although it should not; empty if it works as written.
	Denies string `json:"denies,omitempty"`
}

// Issuer is an issuer of tokens.
type Issuer struct {
	Name string `json:"name"`
	// Keys says where its keys come from.
	Keys string `json:"keys"`
	// Required is true if every request must have one of its tokens.
	Required bool `json:"required,omitempty"`
	// Missing is true if its keys are not known, so that all its tokens are rejected.
	Missing bool `json:"missing,omitempty"`
}

// Actions are the actions in the order in which Envoy evaluates them.
func Actions() []string {
	return []string{
		security.AuthorizationPolicy_CUSTOM.String(), TokenAction, security.AuthorizationPolicy_AUDIT.String(),
		security.AuthorizationPolicy_DENY.String(), security.AuthorizationPolicy_ALLOW.String(),
	}
}

// policies writes the policies that apply to a workload.
func (p text) policies(list []Policy) {
	p.Heading("policies, in the order in which Envoy evaluates them")
	for _, one := range list {
		at := one.Object.Position()
		if at == "" {
			at = "cluster"
		}
		p.Line("  %s\t%s\t%s\t%s", one.Action, one.Object.Key(), at, one.summary())
	}
	if !slices.ContainsFunc(list, func(p Policy) bool { return p.Action == security.AuthorizationPolicy_ALLOW.String() && !p.DryRun }) {
		p.Line("  what nothing denies is allowed: no policy with the action ALLOW applies")
	} else {
		p.Line("  what no policy with the action ALLOW matches is denied")
	}
	for _, one := range list {
		if one.Denies != "" {
			p.Line("  %s denies what it matches: %s", one.Object.Key(), one.Denies)
		}
		for _, is := range one.Issuers {
			p.Line("  %s", is.line(one.Object))
		}
	}
}

// String says what the policy does, without its name.
func (p Policy) String() string { return p.summary() }

func (is Issuer) line(of Ref) string {
	text := fmt.Sprintf("%s: issuer %q, %s", of.Key(), is.Name, is.Keys)
	if is.Required {
		text += "; every request must have one of its tokens"
	}
	if is.Missing {
		text += "; until then its tokens are rejected"
	}
	return text
}

// summary describes a policy in some words.
func (p Policy) summary() string {
	parts := []string{"1 rule"}
	if p.Rules != 1 {
		parts[0] = fmt.Sprintf("%d rules", p.Rules)
	}
	switch {
	case p.Rules == 0 && p.Action == security.AuthorizationPolicy_ALLOW.String():
		parts = append(parts, "so it allows nothing")
	case p.Rules == 0 && p.Action != TokenAction:
		parts = append(parts, "so it matches nothing")
	}
	if p.Provider != "" {
		parts = append(parts, "asks the provider "+p.Provider)
	}
	if p.DryRun {
		parts = append(parts, "only tried out")
	}
	return strings.Join(parts, ", ")
}
