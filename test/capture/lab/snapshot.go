package lab

import (
	"fmt"
	"os/exec"
	"regexp"
	"sort"
	"strings"

	"github.com/pilotmesh/pilot/test/netns"
)

// Snapshot counts the lines that describe the network state of a namespace, each with its kind in front.
// Empty built-in chains, which looking at a table is enough to make, and counters do not count.
type Snapshot map[string]int

const snapScript = `
for t in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do echo "@$t"; $t-save 2>/dev/null; done
echo @nft; nft list ruleset 2>/dev/null
echo @rule; ip -4 rule; ip -6 rule
echo @route; ip -4 route show table all; ip -6 route show table all
echo @address; ip -o addr show
`

var (
	counters   = regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+`)
	ownedTable = regexp.MustCompile(`^table ip6? (filter|nat|mangle|raw|security) `)
	passing    = regexp.MustCompile(`\s+valid_lft.*| expires \S+| linkdown| dead`) // comes and goes by itself
	spaces     = regexp.MustCompile(`\s+`)
)

// SnapshotOf reads the present state of a namespace.
func SnapshotOf(n netns.Namespace, path string) Snapshot {
	var out []byte
	n.Do(-1, -1, func() {
		cmd := exec.Command("/bin/sh", "-c", snapScript)
		cmd.Env = []string{"PATH=" + path}
		out, _ = cmd.Output() // a variant that is not there has nothing
	})
	snap, at := Snapshot{}, position{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(counters.ReplaceAllString(strings.TrimSpace(line), ""))
		if name, ok := strings.CutPrefix(line, "@"); ok {
			at = position{section: name}
			continue
		}
		if line == "" || line == "COMMIT" || line == "}" || line[0] == '#' {
			continue
		}
		if kind, text, ok := at.describe(line); ok {
			text = passing.ReplaceAllString(text, "")
			snap[kind+"\t"+strings.TrimSpace(spaces.ReplaceAllString(text, " "))]++
		}
	}
	return snap
}

// position is where in the output a line stands.
type position struct {
	section, table string
	skip           bool
}

// describe says what kind of thing a line is about, if it counts.
func (at *position) describe(line string) (kind, text string, counts bool) {
	local := strings.Contains(line, "fe80::")
	switch {
	case strings.HasSuffix(at.section, "-nft"), strings.HasSuffix(at.section, "-legacy"):
		if line[0] == '*' {
			at.table = line
			return "", "", false
		}
		kind = "rule"
		if line[0] == ':' {
			kind = "chain"
		}
		return kind, at.section + " " + at.table + " " + line, kind == "rule" || !strings.HasSuffix(line, " ACCEPT")
	case at.section == "nft":
		kind = "nft rule"
		if strings.HasPrefix(line, "table ") {
			at.skip, at.table, kind = ownedTable.MatchString(line), line, "nft table"
		} else if strings.HasPrefix(line, "chain ") || strings.HasPrefix(line, "type ") {
			kind = "nft chain"
		}
		return kind, at.table + " " + line, !at.skip
	case at.section == "rule":
		return "ip rule", line, true
	case at.section == "route":
		return at.section, line, !local && !strings.Contains(line, "ff00::") && !strings.Contains(line, "multicast")
	}
	return at.section, line, !local
}

// Compare says in counts how now differs from before, and lists the lines.
func (before Snapshot) Compare(now Snapshot) (saw string, lines []string) {
	left, lost := map[string]int{}, map[string]int{}
	all := map[string]bool{}
	for k := range before {
		all[k] = true
	}
	for k := range now {
		all[k] = true
	}
	for k := range all {
		kind, line, _ := strings.Cut(k, "\t")
		if d := now[k] - before[k]; d > 0 {
			left[kind] += d
			lines = append(lines, "+ "+line)
		} else if d < 0 {
			lost[kind] -= d
			lines = append(lines, "- "+line)
		}
	}
	sort.Strings(lines)
	words := func(verb string, counts map[string]int) {
		var kinds []string
		for kind := range counts {
			kinds = append(kinds, kind)
		}
		sort.Strings(kinds)
		for i, kind := range kinds {
			kinds[i] = fmt.Sprintf("%d %s", counts[kind], kind)
		}
		if len(kinds) > 0 {
			if saw != "" {
				saw += "; "
			}
			saw += verb + " " + strings.Join(kinds, ", ")
		}
	}
	words("left", left)
	words("lost", lost)
	if saw == "" {
		saw = "as before"
	}
	return saw, lines
}
