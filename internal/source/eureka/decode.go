package eureka

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// suffix is the suffix of hosts if the file has none.
const suffix = "eureka"

// applications are the instances of all applications by name and ID, as the server sent them.
type applications struct {
	apps map[string]map[string]json.RawMessage
}

// list is a list that some servers send as its only element.
type list []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (l *list) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]json.RawMessage)(l))
	}
	if !bytes.Equal(b, []byte("null")) {
		*l = list{bytes.Clone(b)}
	}
	return nil
}

// answer is the answer of the server for all applications, or for changes.
type answer struct {
	Applications struct {
		Hash        string `json:"apps__hashcode"`
		Application list   `json:"application"`
	} `json:"applications"`
}

type application struct {
	Name     string `json:"name"`
	Instance list   `json:"instance"`
}

// instance is an instance, as the server sends it.
type instance struct {
	InstanceID string `json:"instanceId"`
	HostName   string `json:"hostName"`
	App        string `json:"app"`
	IPAddr     string `json:"ipAddr"`
	Status     string `json:"status"`
	Override   string `json:"overriddenStatus"`
	OldForm    string `json:"overriddenstatus"`
	Port       port   `json:"port"`
	SecurePort port   `json:"securePort"`
	Metadata   map[string]any
	Action     string `json:"actionType"`
}

// port is a number with a switch.
type port struct {
	Number  json.RawMessage `json:"$"`
	Enabled any             `json:"@enabled"`
}

// number is the port if it is enabled, and 0 otherwise.
func (p port) number() uint32 {
	n, err := strconv.ParseUint(strings.Trim(string(p.Number), `"`), 10, 16)
	if err != nil || fmt.Sprint(p.Enabled) != "true" {
		return 0
	}
	return uint32(n)
}

// id identifies an instance in its application.
func (i *instance) id() string {
	if i.InstanceID != "" {
		return i.InstanceID
	}
	return i.HostName
}

// decode reads the answer for all applications.
func decode(body []byte) (*applications, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("the list of applications cannot be read: %w", err)
	}
	all := &applications{map[string]map[string]json.RawMessage{}}
	for n, raw := range a.Applications.Application {
		var app application
		if json.Unmarshal(raw, &app) != nil || app.Name == "" {
			app = application{Name: fmt.Sprintf("application[%d]", n), Instance: list{raw}}
		}
		for i, raw := range app.Instance {
			all.put(app.Name, idOf(raw, i), raw)
		}
	}
	return all, nil
}

func idOf(raw json.RawMessage, n int) string {
	var i instance
	if json.Unmarshal(raw, &i) == nil && i.id() != "" {
		return i.id()
	}
	return fmt.Sprintf("[%d]", n)
}

func (a *applications) put(app, id string, raw json.RawMessage) {
	if a.apps[app] == nil {
		a.apps[app] = map[string]json.RawMessage{}
	}
	a.apps[app][id] = raw
}

// with returns the applications after changes. ok is false if the changes cannot be read, or do not lead to what the server has.
func (a *applications) with(body []byte) (next *applications, touched map[string]bool, ok bool) {
	var d answer
	if json.Unmarshal(body, &d) != nil {
		return nil, nil, false
	}
	next, touched = &applications{maps.Clone(a.apps)}, map[string]bool{}
	for _, raw := range d.Applications.Application {
		var app application
		if json.Unmarshal(raw, &app) != nil || app.Name == "" {
			return nil, nil, false
		}
		if !touched[app.Name] {
			next.apps[app.Name] = maps.Clone(next.apps[app.Name])
			touched[app.Name] = true
		}
		for n, raw := range app.Instance {
			var i instance
			if json.Unmarshal(raw, &i) != nil {
				return nil, nil, false
			}
			if i.Action == "DELETED" {
				delete(next.apps[app.Name], idOf(raw, n))
			} else {
				next.put(app.Name, idOf(raw, n), raw)
			}
		}
		if len(next.apps[app.Name]) == 0 {
			delete(next.apps, app.Name)
		}
	}
	return next, touched, next.hash() == d.Applications.Hash
}

// hash is the server's hash: the number of instances in each status.
func (a *applications) hash() string {
	count := map[string]int{}
	for _, app := range a.apps {
		for _, raw := range app {
			var i instance
			if json.Unmarshal(raw, &i) == nil {
				count[i.Status]++
			}
		}
	}
	var b strings.Builder
	for _, status := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "%s_%d_", status, count[status])
	}
	return b.String()
}

// differences are the applications that differ from those before.
func (a *applications) differences(was *applications) map[string]bool {
	out := map[string]bool{}
	if was == nil {
		return out
	}
	for name := range was.apps {
		out[name] = a.apps[name] == nil
	}
	for name, is := range a.apps {
		out[name] = !maps.EqualFunc(is, was.apps[name], func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
	}
	maps.DeleteFunc(out, func(_ string, differs bool) bool { return !differs })
	return out
}

// services returns the services of applications: of all if touched is nil. One that is gone is nil.
func (a *applications) services(e registries.Entry, touched map[string]bool) registries.Services {
	out := registries.Services{}
	add := func(name string) {
		if e.Active(name) {
			out[name] = a.service(name)
		}
	}
	if touched == nil {
		for name := range a.apps {
			add(name)
		}
	}
	for name := range touched {
		add(name)
	}
	return out
}

func (a *applications) service(name string) *registries.Service {
	app := a.apps[name]
	if app == nil {
		return nil
	}
	s := &registries.Service{HostName: name, Suffix: suffix}
	for _, id := range slices.Sorted(maps.Keys(app)) {
		var i instance
		if err := json.Unmarshal(app[id], &i); err != nil {
			s.Unread = append(s.Unread, registries.Remark{Place: name + "/" + id, Reason: fmt.Sprintf("it cannot be read: %v", err)})
			continue
		}
		s.Instances = append(s.Instances, i.instance(id))
	}
	return s
}

func (i *instance) instance(id string) registries.Instance {
	in := registries.Instance{ID: id, Address: i.IPAddr, Labels: map[string]string{}}
	if in.Address == "" {
		in.Address = i.HostName
	}
	for k, v := range i.Metadata {
		if text, ok := v.(string); ok && k != "@class" {
			in.Labels[k] = text
		}
	}
	in.Weight = in.Labels["weight"]
	if n := i.Port.number(); n != 0 {
		in.Ports = append(in.Ports, registries.Port{Number: n})
	}
	if n := i.SecurePort.number(); n != 0 {
		in.Ports = append(in.Ports, registries.Port{Number: n, Protocol: "https"})
	}
	status := i.Status
	for _, override := range []string{i.OldForm, i.Override} {
		if override != "" && override != "UNKNOWN" {
			status = override
		}
	}
	if status != "UP" {
		in.Down = "its status is " + status
	}
	return in
}
