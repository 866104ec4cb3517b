package nftables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// header is the name of the header of a version of IP.
func header(f rules.Family) string {
	if f == rules.IPv4 {
		return "ip"
	}
	return "ip6"
}

// statements writes a rule of the set as rules of nftables. Most are one.
func statements(f rules.Family, r rules.Rule) []string {
	conditions := strings.Join(conditions(f, r.Match), " ")
	var out []string
	for _, do := range verdicts(f, r.Action) {
		out = append(out, strings.TrimSpace(conditions+" "+do))
	}
	return out
}

func conditions(f rules.Family, m rules.Match) []string {
	var out []string
	add := func(what string, not bool, value string) {
		if not {
			value = "!= " + value
		}
		out = append(out, what+" "+value)
	}
	for _, i := range []struct{ what, name string }{{"iifname", m.In}, {"oifname", m.Out}} {
		if i.name != "" {
			name := i.name
			if before, ok := strings.CutSuffix(name, "+"); ok {
				name = before + "*"
			}
			add(i.what, false, strconv.Quote(name))
		}
	}
	for _, a := range []struct {
		what string
		of   rules.Address
	}{{"saddr", m.Source}, {"daddr", m.Destination}} {
		if r := a.of.Range; r.IsValid() && (r.Bits() > 0 || a.of.Not) {
			text := r.String()
			if r.IsSingleIP() {
				text = r.Addr().String()
			}
			add(header(f)+" "+a.what, a.of.Not, text)
		}
	}
	out = append(out, ports(m)...)
	if m.State != "" {
		add("ct state", false, strings.ToLower(string(m.State)))
	}
	if m.Mark != 0 {
		add("meta mark", false, hex(m.Mark))
	}
	if m.NotMark != 0 {
		add("meta mark", true, hex(m.NotMark))
	}
	if m.ConnMark != 0 {
		add("ct mark", false, hex(m.ConnMark))
	}
	if m.Owner.Kind != "" {
		add("meta sk"+string(m.Owner.Kind), m.Owner.Not, between(m.Owner.IDs.From, m.Owner.IDs.To))
	}
	return out
}

// ports writes the conditions on protocol and ports.
func ports(m rules.Match) []string {
	var out []string
	of := func(what string, ports []settings.Ports) {
		for _, p := range ports {
			out = append(out, string(m.Protocol)+" "+what+" "+between(uint32(p.From), uint32(p.To)))
		}
	}
	of("sport", m.From)
	of("dport", m.To)
	if len(m.NotTo) > 0 {
		var not []string
		for _, p := range m.NotTo {
			not = append(not, strconv.Itoa(int(p)))
		}
		out = append(out, string(m.Protocol)+" dport != "+list(not))
	}
	if m.Protocol != "" && len(out) == 0 {
		out = append(out, "meta l4proto "+string(m.Protocol))
	}
	return out
}

// verdicts writes an action, as one or more statements that are rules of their own.
func verdicts(f rules.Family, a rules.Action) []string {
	switch a.Kind {
	case rules.Jump:
		return []string{"jump " + a.Chain}
	case rules.Return:
		return []string{"return"}
	case rules.Accept:
		return []string{"accept"}
	case rules.DropPacket:
		return []string{"drop"}
	case rules.ToPort:
		return []string{"redirect to :" + strconv.Itoa(int(a.Port))}
	case rules.ToSocket:
		// A rule whose listener does not exist does not match. The packet must not get past the proxy, so the second rule drops it.
		return []string{fmt.Sprintf("tproxy %s to :%d meta mark set %s accept", header(f), a.Port, hex(a.Value)), "drop"}
	case rules.SetMark:
		return []string{"meta mark set " + hex(a.Value)}
	case rules.SaveMark:
		return []string{"ct mark set meta mark"}
	case rules.RestoreMark:
		return []string{"meta mark set ct mark"}
	case rules.SetZone:
		return []string{"ct zone set " + strconv.Itoa(int(a.Value))}
	}
	panic(fmt.Sprintf("no such action: %d", a.Kind))
}

func hex(n uint32) string { return fmt.Sprintf("%#x", n) }

// list writes one value, or a set of several.
func list(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return "{ " + strings.Join(values, ", ") + " }"
}

// between writes a range, or one number.
func between(from, to uint32) string {
	s := strconv.FormatUint(uint64(from), 10)
	if from != to {
		s += "-" + strconv.FormatUint(uint64(to), 10)
	}
	return s
}
