// Package logging makes the logger of a program. Each part of the program has a level of its own that can be changed at run time.
//
// It owns the names of levels and the form PART:LEVEL in which they are set: by --log_output_level at the start, and by the page
// /debug/logging later. A part is chosen where a logger is handed on (For); code that logs knows nothing of parts.
//
// Goroutines: none. All functions may be called at the same time.
package logging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api/spelling"
)

// none is a level at which nothing is logged.
const none = slog.Level(100)

// everything are names that mean all parts.
var everything = []string{"", "default", "all"}

// levels are the names of levels, from the most to the fewest messages.
var levels = []struct {
	name  string
	level slog.Level
}{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError}, {"none", none}}

// Part is a part of a program.
type Part struct {
	Name string
	// Logs describes the messages of the part.
	Logs string
	// Scopes are the names that Istio has for the part, or for some of it.
	Scopes []string
}

// rest is the name of the part of all messages that belong to no other one.
const rest = "core"

// Levels are the levels of the parts of a program.
type Levels struct {
	parts []Part
	vars  map[string]*slog.LevelVar
}

// State is the level of one part.
type State struct {
	Part  string `json:"part"`
	Level string `json:"level"`
	Logs  string `json:"logs"`
}

// New returns the logger of a program with these parts, and with the part Rest, at the level info.
func New(w io.Writer, asJSON bool, parts []Part) *slog.Logger {
	l := &Levels{parts: append(slices.Clone(parts), Part{Name: rest, Logs: "everything else"}), vars: map[string]*slog.LevelVar{}}
	for _, p := range l.parts {
		l.vars[p.Name] = new(slog.LevelVar)
	}
	o := &slog.HandlerOptions{Level: slog.LevelDebug}
	var h slog.Handler = slog.NewTextHandler(w, o)
	if asJSON {
		h = slog.NewJSONHandler(w, o)
	}
	return slog.New(&handler{h, l, l.vars[rest]})
}

// For returns the logger of a part. A logger that New has not made, and a part that it does not have, result in the same logger.
func For(log *slog.Logger, part string) *slog.Logger {
	h, ok := log.Handler().(*handler)
	if !ok || h.levels.vars[part] == nil {
		return log
	}
	return slog.New(&handler{h.Handler, h.levels, h.levels.vars[part]})
}

// Of returns the levels of a logger; nil if New has not made it.
func Of(log *slog.Logger) *Levels {
	if h, ok := log.Handler().(*handler); ok {
		return h.levels
	}
	return nil
}

// handler passes on the messages of its part.
type handler struct {
	slog.Handler
	levels *Levels
	level  *slog.LevelVar
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(list []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(list), h.levels, h.level}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.levels, h.level}
}

// setting is one element of a text like xds:debug.
type setting struct {
	part  string
	level slog.Level
}

// parse reads settings. The part of a setting for all parts is empty.
func parse(text string) (list []setting, err error) {
	for one := range strings.SplitSeq(text, ",") {
		part, name, found := strings.Cut(strings.TrimSpace(one), ":")
		if !found {
			part, name = "", part
		}
		level, err := levelOf(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(everything, part) {
			part = ""
		}
		list = append(list, setting{part, level})
	}
	return list, nil
}

func levelOf(name string) (slog.Level, error) {
	switch name {
	case "":
		return slog.LevelInfo, nil
	case "fatal":
		return slog.LevelError, nil
	}
	for _, l := range levels {
		if l.name == name {
			return l.level, nil
		}
	}
	return 0, fmt.Errorf("%q is not a level; write debug, info, warn, error or none", name)
}

// Check returns an error for a text that Set refuses because of its levels. Parts are not looked at.
func Check(text string) error {
	_, err := parse(text)
	return err
}

// Set changes levels: a level alone, or of the part default or all, is for all parts, and PART:LEVEL for one; several are separated by
// commas, and those for single parts go before the ones for all. It sets the parts that exist, and returns an error that names the others.
func (l *Levels) Set(text string) error {
	list, err := parse(text)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if s.part == "" {
			for _, v := range l.vars {
				v.Set(s.level)
			}
		}
	}
	for _, s := range list {
		if s.part == "" {
			continue
		}
		p, ok := l.part(s.part)
		if !ok {
			errs = append(errs, errors.New(l.unknown(s.part)))
			continue
		}
		l.vars[p].Set(s.level)
	}
	return errors.Join(errs...)
}

// part returns the name of the part that has a name, of its own or as a scope of Istio.
func (l *Levels) part(name string) (string, bool) {
	for _, p := range l.parts {
		if p.Name == name || slices.Contains(p.Scopes, name) {
			return p.Name, true
		}
	}
	return "", false
}

func (l *Levels) unknown(name string) string {
	names := make([]string, len(l.parts))
	for i, p := range l.parts {
		names[i] = p.Name
	}
	text := fmt.Sprintf("there is no part %q", name)
	if near := spelling.Meant(name, names); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text + "; the parts are " + strings.Join(names, ", ") + ", and all"
}

// List returns the present levels.
func (l *Levels) List() []State {
	list := make([]State, len(l.parts))
	for i, p := range l.parts {
		list[i] = State{p.Name, nameOf(l.vars[p.Name].Level()), p.Logs}
	}
	return list
}

func nameOf(level slog.Level) string {
	for _, l := range levels {
		if l.level == level {
			return l.name
		}
	}
	return level.String()
}

// maxText bounds the body of a request that sets levels.
const maxText = 4 << 10

// ServeHTTP is the page: GET lists parts and levels as JSON; PUT and POST set them first, by the parameter level or by the body. Pages of
// other sites cannot do that in the name of a browser's user.
func (l *Levels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.NewCrossOriginProtection().Handler(http.HandlerFunc(l.serve)).ServeHTTP(w, r)
}

func (l *Levels) serve(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut, http.MethodPost:
		text := r.URL.Query().Get("level")
		if text == "" {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			text = strings.TrimSpace(string(body))
		}
		if text == "" {
			http.Error(w, "say what to set, as ?level=LEVEL or ?level=PART:LEVEL, or in the body", http.StatusBadRequest)
			return
		}
		if err := l.Set(text); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	default:
		w.Header().Set("Allow", "GET, PUT, POST")
		http.Error(w, "read levels by GET, and set them by PUT", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(l.List()) // an error means that the client has gone
}
