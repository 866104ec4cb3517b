package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// block is a fenced block of a page.
type block struct {
	line  int    // number of its first line, from 0
	lang  string // after the fence
	mark  string // text of the HTML comment before the block; "" if there is none
	lines []string
}

// parse returns the fenced blocks of a page. Fences begin at the start of a line.
func parse(text string) ([]block, error) {
	var list []block
	var open *block
	before := "" // the last line that is not empty
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case open == nil && isFence:
			open = &block{line: i + 1, lang: fence, mark: comment(before)}
		case open != nil && line == "```":
			list = append(list, *open)
			open, before = nil, ""
		case open != nil:
			open.lines = append(open.lines, line)
		case line != "":
			before = line
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block has no end", open.line)
	}
	return list, nil
}

// comment returns the text of an HTML comment of one line; "" for other lines.
func comment(line string) string {
	text, begins := strings.CutPrefix(line, "<!--")
	text, ends := strings.CutSuffix(text, "-->")
	if !begins || !ends {
		return ""
	}
	return strings.TrimSpace(text)
}

// step is a command of a block, with the output that the page shows.
type step struct {
	line    int // number of the first line of the output
	command string
	output  []string
}

// steps returns the commands of a console block. Lines that begin with "$ " are commands; a command continues on the next line after a backslash,
// or until the end of its here-document.
func (b block) steps() ([]step, error) {
	var list []step
	for i := 0; i < len(b.lines); i++ {
		command, isCommand := strings.CutPrefix(b.lines[i], "$ ")
		if !isCommand {
			if len(list) == 0 {
				return nil, fmt.Errorf("line %d: a console block begins with a command, `$ ...`", b.line+i+1)
			}
			last := &list[len(list)-1]
			last.output = append(last.output, b.lines[i])
			continue
		}
		end := ""
		if m := hereDocument.FindStringSubmatch(command); m != nil {
			end = m[1]
		}
		for i+1 < len(b.lines) && (strings.HasSuffix(command, `\`) || end != "") {
			i++
			command += "\n" + b.lines[i]
			if b.lines[i] == end {
				break
			}
		}
		list = append(list, step{line: b.line + i + 1, command: command})
	}
	return list, nil
}

var hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?$`)

// file returns the name of the file that a YAML block shows: its first line is a comment with this name. "" if it shows none.
func (b block) file() string {
	if b.lang != "yaml" || len(b.lines) == 0 {
		return ""
	}
	if m := fileName.FindStringSubmatch(b.lines[0]); m != nil {
		return m[1]
	}
	return ""
}

var fileName = regexp.MustCompile(`^# ([a-z0-9/.-]+\.yaml)$`)

// matches compares the shown output with the real one, without blanks and carriage returns at the ends of lines. A shown line "..." matches any lines, and "..." within a line any text.
func matches(shown, printed []string) bool {
	var form strings.Builder
	form.WriteString("^")
	for _, line := range shown {
		line = strings.TrimRight(line, " \r")
		if line == "..." {
			form.WriteString(`(?:.*\n)*?`)
			continue
		}
		form.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*?`) + `\n`)
	}
	form.WriteString("$")
	var text strings.Builder
	for _, line := range printed {
		text.WriteString(strings.TrimRight(line, " \r") + "\n")
	}
	return regexp.MustCompile(form.String()).MatchString(text.String())
}
