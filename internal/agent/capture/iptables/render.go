package iptables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/agent/capture/rules"
	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// allBits is the mask of a whole mark.
const allBits = "0xffffffff"

// spec writes a rule as iptables-save does, without its chain, so that installed rules can be compared with it.
func spec(f rules.Family, r rules.Rule) string {
	var out []string
	add := func(not bool, words ...string) {
		if not {
			out = append(out, "!")
		}
		out = append(out, words...)
	}
	address := func(flag string, a rules.Address) {
		if a.Range.IsValid() && (a.Range.Bits() > 0 || a.Not) {
			add(a.Not, flag, a.Range.String())
		}
	}
	address("-s", r.Source)
	address("-d", r.Destination)
	for _, i := range []struct{ flag, name string }{{"-i", r.In}, {"-o", r.Out}} {
		if i.name != "" {
			add(false, i.flag, i.name)
		}
	}
	if r.Protocol != "" {
		add(false, "-p", string(r.Protocol))
	}
	out = append(out, matches(r.Match)...)
	return strings.Join(append(out, target(f, r.Action)...), " ")
}

// matches writes the conditions that are modules of iptables.
func matches(m rules.Match) []string {
	var out []string
	port := func(flag string, ports []settings.Ports) {
		for _, p := range ports {
			out = append(out, "-m", string(m.Protocol), flag, between(uint32(p.From), uint32(p.To), ":"))
		}
	}
	port("--sport", m.From)
	port("--dport", m.To)
	switch len(m.NotTo) {
	case 0:
	case 1:
		out = append(out, "-m", string(m.Protocol), "!", "--dport", strconv.Itoa(int(m.NotTo[0])))
	default:
		var list []string
		for _, p := range m.NotTo {
			list = append(list, strconv.Itoa(int(p)))
		}
		out = append(out, "-m", "multiport", "!", "--dports", strings.Join(list, ","))
	}
	if m.State != "" {
		out = append(out, "-m", "conntrack", "--ctstate", string(m.State))
	}
	if m.Mark != 0 {
		out = append(out, "-m", "mark", "--mark", hex(m.Mark))
	}
	if m.NotMark != 0 {
		out = append(out, "-m", "mark", "!", "--mark", hex(m.NotMark))
	}
	if m.ConnMark != 0 {
		out = append(out, "-m", "connmark", "--mark", hex(m.ConnMark))
	}
	if m.Owner.Kind != "" {
		out = append(out, "-m", "owner")
		if m.Owner.Not {
			out = append(out, "!")
		}
		out = append(out, "--"+string(m.Owner.Kind)+"-owner", between(m.Owner.IDs.From, m.Owner.IDs.To, "-"))
	}
	return out
}

func target(f rules.Family, a rules.Action) []string {
	switch a.Kind {
	case rules.Jump:
		return []string{"-j", a.Chain}
	case rules.Return:
		return []string{"-j", "RETURN"}
	case rules.Accept:
		return []string{"-j", "ACCEPT"}
	case rules.DropPacket:
		return []string{"-j", "DROP"}
	case rules.ToPort:
		return []string{"-j", "REDIRECT", "--to-ports", strconv.Itoa(int(a.Port))}
	case rules.ToSocket:
		return []string{
			"-j", "TPROXY", "--on-port", strconv.Itoa(int(a.Port)),
			"--on-ip", f.Everywhere().Addr().String(), "--tproxy-mark", hex(a.Value) + "/" + allBits,
		}
	case rules.SetMark:
		return []string{"-j", "MARK", "--set-xmark", hex(a.Value) + "/" + allBits}
	case rules.SaveMark:
		return []string{"-j", "CONNMARK", "--save-mark", "--nfmask", allBits, "--ctmask", allBits}
	case rules.RestoreMark:
		return []string{"-j", "CONNMARK", "--restore-mark", "--nfmask", allBits, "--ctmask", allBits}
	case rules.SetZone:
		return []string{"-j", "CT", "--zone", strconv.Itoa(int(a.Value))}
	}
	panic(fmt.Sprintf("no such action: %d", a.Kind))
}

func hex(n uint32) string { return fmt.Sprintf("%#x", n) }

// between writes a range, or one number.
func between(from, to uint32, separator string) string {
	s := strconv.FormatUint(uint64(from), 10)
	if from != to {
		s += separator + strconv.FormatUint(uint64(to), 10)
	}
	return s
}
