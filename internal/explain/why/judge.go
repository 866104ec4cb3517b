package why

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/explain/page"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// maxExamples bounds how many workloads a judgement names, and maxCandidates how many objects.
const (
	maxExamples   = 5
	maxCandidates = 10
)

// Complete judges the request at each workload. It may be called once, on any goroutine.
func (a *Access) Complete() {
	a.each(func(w *workload, j Judgement) { a.add(j, w) })
	for _, j := range a.Answers {
		if at := slices.IndexFunc(j.Steps, Step.isProxy); at >= 0 {
			j.Steps[at] = proxyStep(j.Connected, j.Workloads)
		}
	}
	slices.SortStableFunc(a.Answers, func(x, y Judgement) int { return cmp.Compare(y.Workloads, x.Workloads) })
	a.Verdict = a.Answers[0].Verdict
	for _, one := range a.Answers {
		if one.Verdict != a.Verdict {
			a.Verdict = reply.Mixed
		}
	}
	a.workloads = nil
}

// each judges the request at each workload.
func (a *Access) each(judged func(*workload, Judgement)) {
	listeners := map[*place][]*listenerv3.Listener{}
	for _, w := range a.workloads {
		if _, read := listeners[w.place]; w.place != nil && !read {
			listeners[w.place] = w.place.read()
		}
		judged(w, a.judge(w, listeners[w.place]))
	}
}

// read decodes the listeners.
func (p *place) read() (list []*listenerv3.Listener) {
	for _, r := range p.listeners {
		m, err := r.Proto()
		if l, ok := m.(*listenerv3.Listener); ok && err == nil {
			list = append(list, l)
		}
	}
	return list
}

// add counts a workload for a judgement.
func (a *Access) add(j Judgement, w *workload) {
	at := slices.IndexFunc(a.Answers, func(o Judgement) bool { return o.same(j) })
	if at < 0 {
		at = len(a.Answers)
		a.Answers = append(a.Answers, j)
	}
	to := &a.Answers[at]
	to.Workloads++
	if w.connected {
		to.Connected++
	}
	if len(to.Examples) < maxExamples {
		to.Examples = append(to.Examples, w.endpoint.Address)
	}
}

// same reports whether two judgements say the same.
func (j Judgement) same(o Judgement) bool {
	sameRef := j.Decider == o.Decider || j.Decider != nil && o.Decider != nil && *j.Decider == *o.Decider
	return sameRef && j.Verdict == o.Verdict && j.Status == o.Status && j.Transport == o.Transport && j.Path == o.Path && j.Rule == o.Rule &&
		j.Reason == o.Reason && j.Provider == o.Provider && j.Fix == o.Fix && slices.Equal(j.Candidates, o.Candidates) && slices.EqualFunc(j.Steps, o.Steps, Step.sameBesidesProxy) && slices.Equal(j.Notes, o.Notes)
}

// same reports whether two steps say the same.
func (s Step) same(o Step) bool {
	sameRef := s.Object == o.Object || s.Object != nil && o.Object != nil && *s.Object == *o.Object
	s.Object, o.Object = nil, nil
	return sameRef && s == o
}

// sameBesidesProxy reports whether two steps say the same, or are both about whether a proxy is connected, which a Judgement counts.
func (s Step) sameBesidesProxy(o Step) bool {
	return s.Name == proxyStepName && o.Name == proxyStepName || s.same(o)
}

// outcome is the verdict in a word.
func (s Step) outcome() string {
	switch s.Verdict {
	case access.Allowed:
		return "ok"
	case access.Denied:
		return "fails"
	}
	return string(s.Verdict)
}

// listenerAt is the listener that connections to a port of the workload reach; nil if they reach the application directly.
func listenerAt(list []*listenerv3.Listener, port uint32) *listenerv3.Listener {
	var captured *listenerv3.Listener
	for _, l := range list {
		switch {
		case l.Name == envoy.VirtualInbound:
			captured = l
		case l.GetAddress().GetSocketAddress().GetPortValue() == port:
			return l
		}
	}
	return captured
}

// judge finds out what a workload answers.
func (a *Access) judge(w *workload, listeners []*listenerv3.Listener) Judgement {
	r := a.parsed.Sent
	r.Port, r.Address = w.endpoint.Port, w.address
	r.TLS = w.speaks(a)
	j := Judgement{Transport: transport(r.TLS)}
	if w.trouble != "" {
		j.Verdict, j.Reason = access.Unknown, w.trouble
		return j
	}
	l := listenerAt(listeners, r.Port)
	if l == nil {
		j.Verdict, j.Reason = access.Allowed, fmt.Sprintf("its proxy does not listen at port %d: connections reach the application directly", r.Port)
		if w.place.mode != proxy.None {
			j.Verdict, j.Reason = access.Unknown, "its proxy has no inbound listener"
		}
		return j
	}
	if a.parsed.Token != nil {
		r = r.WithToken(l, a.parsed.Token)
	}
	d := access.Evaluate(l, r, access.Options{Keyless: authz.Keyless})
	if w.takesNoTLS(a.client) {
		d = access.Decision{Verdict: access.Denied, Stage: access.AtConnection, Reason: "the workload takes no mutual TLS, and the client insists on it"}
	}
	j.Verdict, j.Status, j.Reason = d.Verdict, d.Status, d.Reason
	if d.Path != r.Path {
		j.Path = d.Path
	}
	w.decide(&j, d)
	closed := d.Verdict == access.Denied && d.Stage == access.AtConnection
	if closed && (r.TLS == nil || a.client.tls != nil) {
		j.Decider = w.place.ref(w.peer)
	}
	w.way(&j, a.client, r.TLS, r.TCP, closed)
	for _, n := range d.Noted {
		if rule, _ := authz.RuleOf(n.Policy); !rule.Custom {
			j.Notes = append(j.Notes, w.place.note(n))
		}
	}
	if !d.HTTP && !r.TCP && d.Stage != access.AtConnection {
		j.Notes = append(j.Notes, "the port takes this connection as one that is not HTTP, so rules about requests count as rules about connections")
	}
	if r.TLS == nil && a.parsed.Sent.TLS != nil && a.client.tls == nil && !a.client.past {
		j.Notes = append(j.Notes, "clients send plain text to this workload, so it does not learn who they are: its endpoint or a policy says that it takes no mutual TLS")
	}
	return j
}

func transport(tls *access.TLS) string {
	switch {
	case tls == nil:
		return "plain text"
	case tls.Identity == "":
		return "TLS without a certificate of the mesh"
	}
	return "mutual TLS of the mesh, as " + tls.Identity
}

// decide says which object decided.
func (w *workload) decide(j *Judgement, d access.Decision) {
	at := w.place
	if rule, ok := authz.RuleOf(d.Policy); ok {
		j.Decider, j.Rule = at.ref(rule.Policy), fmt.Sprintf("spec.rules[%d]", rule.Index)
		if rule.Untranslated {
			j.Reason = "the external authorizer of the policy cannot be asked, so what it matches is denied"
		}
	} else if d.Policy != "" {
		j.Reason = "everything is denied, because the translation of a policy failed"
	}
	switch {
	case d.Provider != "":
		j.Provider = at.provider
		for _, n := range d.Noted {
			if rule, _ := authz.RuleOf(n.Policy); rule.Custom {
				j.Decider, j.Rule = at.ref(rule.Policy), fmt.Sprintf("spec.rules[%d]", rule.Index)
			}
		}
	case d.Verdict == access.Denied && d.Stage == access.AtTokens:
		j.candidates(at, at.tokens)
	case d.Verdict == access.Denied && d.Stage == access.AtPolicies && d.Policy == "":
		j.candidates(at, at.allow)
	case d.Verdict == access.Allowed && d.Policy == "" && d.Reason == "":
		j.Reason = "nothing denies it, and no policy with the action ALLOW applies"
	}
}

func (j *Judgement) candidates(at *place, list []api.Key) {
	for _, k := range list[:min(len(list), maxCandidates)] {
		j.Candidates = append(j.Candidates, at.refs[k])
	}
}

// ref returns an object that decided; nil if none did.
func (p *place) ref(k api.Key) *reply.Ref {
	if ref, ok := p.refs[k]; ok {
		return &ref
	}
	return nil
}

// note describes a policy that matched and does not decide.
func (p *place) note(n access.Note) string {
	who := "the policies with the action ALLOW that are only tried out"
	if rule, ok := authz.RuleOf(n.Policy); ok {
		ref := p.refs[rule.Policy]
		who = fmt.Sprintf("%sspec.rules[%d] of %s", ref.Prefix(), rule.Index, rule.Policy)
	}
	switch {
	case n.Audit:
		return who + " asks for an entry in the audit log"
	case n.Denies:
		return who + " would deny it, and is only tried out"
	}
	return who + " would allow it, and is only tried out"
}

// verdicts are the verdicts by the address of the workload, and the request that they are about in some words.
func (a *Access) verdicts() (asked string, verdicts map[string]access.Verdict) {
	verdicts = map[string]access.Verdict{}
	a.each(func(w *workload, j Judgement) { verdicts[w.endpoint.Address] = j.Verdict })
	if a.Request.TCP {
		return "connections by " + a.Request.From, verdicts
	}
	return "GET / by " + a.Request.From, verdicts
}

// accessText is an answer about access that is being written.
type accessText struct{ *page.Page }

// Write writes the answer as text.
func (a *Access) Write(w io.Writer) error {
	p := accessText{page.New(w)}
	who := "a client outside the mesh"
	if a.Request.From != "" {
		who = a.Request.From
	}
	what := a.Request.Method + " " + a.Request.Path
	if a.Request.TCP {
		what = "a connection"
	}
	_, port, _ := net.SplitHostPort(a.Request.To)
	p.Line("%s: %s from %s to %s:%s (revision %d)", a.Verdict, what, who, a.Host, port, a.Revision)
	common := a.commonSteps()
	for _, j := range a.Answers {
		p.judgement(j, common)
	}
	if len(common) > 0 {
		p.Heading("the same for all of them")
		p.steps(common)
	}
	return p.Done()
}

// commonSteps are the steps that all answers have, if there are several.
func (a *Access) commonSteps() (common []Step) {
	if len(a.Answers) < 2 {
		return nil
	}
	for _, s := range a.Answers[0].Steps {
		if !slices.ContainsFunc(a.Answers[1:], func(j Judgement) bool { return !slices.ContainsFunc(j.Steps, s.same) }) {
			common = append(common, s)
		}
	}
	return common
}

// judgement writes an answer, without the steps that all answers have.
func (p accessText) judgement(j Judgement, common []Step) {
	examples := strings.Join(j.Examples, ", ")
	if j.Workloads > len(j.Examples) {
		examples += ", ..."
	}
	number := "1 workload"
	if j.Workloads > 1 {
		number = fmt.Sprintf("%d workloads", j.Workloads)
	}
	p.Heading(fmt.Sprintf("%s at %s (%s)", j.Verdict, number, examples))
	if j.Decider != nil {
		name := j.Decider.Key().String()
		if j.Rule != "" {
			name = j.Rule + " of " + name
		}
		p.Line("  decided by\t%s%s", j.Decider.Prefix(), name)
	}
	for _, one := range []struct{ title, text string }{{"because", j.Reason}, {"asks", j.Provider}, {"connects", j.Transport}, {"path", j.Path}} {
		if one.text != "" {
			p.Line("  %s\t%s", one.title, one.text)
		}
	}
	if j.Verdict == access.Denied {
		answer := "the connection is closed"
		if j.Status != 0 {
			answer = fmt.Sprintf("status %d", j.Status)
		}
		p.Line("  client sees\t%s", answer)
	}
	if j.Fix != "" {
		p.Line("  fix\t%s", j.Fix)
	}
	for _, c := range j.Candidates {
		p.Line("  see\t%s%s", c.Prefix(), c.Key())
	}
	for _, note := range j.Notes {
		p.Line("  note\t%s", note)
	}
	p.steps(slices.DeleteFunc(slices.Clone(j.Steps), func(s Step) bool { return slices.ContainsFunc(common, s.same) }))
	if j.Connected < j.Workloads && !slices.ContainsFunc(j.Steps, Step.isProxy) {
		p.Line("  note\tno proxy is connected at %d of these workloads: the answer is what a sidecar would do there", j.Workloads-j.Connected)
	}
}

func (p accessText) steps(list []Step) {
	for _, s := range list {
		by := ""
		if s.Object != nil {
			by = fmt.Sprintf(" (%s%s)", s.Object.Prefix(), s.Object.Key())
			if s.Field != "" {
				by = fmt.Sprintf(" (%s%s: %s)", s.Object.Prefix(), s.Object.Key(), s.Field)
			}
		}
		p.Line("  %s\t%s: %s%s", s.Name, s.outcome(), s.Text, by)
	}
}
