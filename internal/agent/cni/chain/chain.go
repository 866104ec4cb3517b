// Package chain puts the plugin on a host and into the configuration of its network, keeps it there, and removes it.
//
// Insert and Remove are pure functions on the content of configuration files. Installer applies them to the folders of a host.
//
// Invariants: files are written whole or not at all. Entries of other plugins stay as they are. A file with the wanted content is not
// written. The package starts no goroutines; package filewatch has one while Installer.Run runs.
package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Entry is the plugin's entry in a list of plugins.
type Entry struct {
	Type              string   `json:"type"`
	RunDir            string   `json:"cni_agent_run_dir"`
	ExcludeNamespaces []string `json:"exclude_namespaces,omitempty"`
}

// network is a configuration: a list of plugins, or one plugin. Fields that are not known stay.
type network map[string]json.RawMessage

func (n network) text(field string) string {
	var s string
	_ = json.Unmarshal(n[field], &s) // a value of another type counts as none
	return s
}

// plugins returns the list of a configuration.
func (n network) plugins() ([]json.RawMessage, error) {
	if n["plugins"] == nil {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(n["plugins"], &list); err != nil {
		return nil, fmt.Errorf("its field plugins is no list: %w", err)
	}
	return list, nil
}

func read(file []byte) (network, []json.RawMessage, error) {
	var n network
	if err := json.Unmarshal(file, &n); err != nil {
		return nil, nil, err
	}
	list, err := n.plugins()
	if err != nil {
		return nil, nil, err
	}
	if n.text("type") == "" && len(list) == 0 {
		return nil, nil, errors.New("it has no plugin")
	}
	return n, list, nil
}

// insert returns the configuration of a network with the entry as its last plugin. A configuration of one plugin becomes a list. An entry of the
// same type is replaced.
func insert(file []byte, e Entry) ([]byte, error) {
	n, list, err := read(file)
	if err != nil {
		return nil, err
	}
	if list == nil {
		if n, list, err = listed(n); err != nil {
			return nil, err
		}
	}
	own, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, ofType(e.Type))
	switch {
	case at < 0:
		list = append(list, own)
	case len(list) == 1:
		return nil, errors.New("it has no plugin but " + e.Type)
	case equal(list[at], own):
		return file, nil
	default: // its place stays: another program may want to be the last one, too
		list[at] = own
	}
	return n.write(list)
}

// equal compares entries whatever their spacing.
func equal(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// listed makes a list of the configuration of one plugin. Name and version belong to the list.
func listed(n network) (network, []json.RawMessage, error) {
	list := network{}
	for _, field := range []string{"name", "cniVersion"} {
		if n[field] != nil {
			list[field] = n[field]
			delete(n, field)
		}
	}
	if list["cniVersion"] == nil {
		list["cniVersion"] = json.RawMessage(`"0.3.1"`) // the first version with lists
	}
	one, err := json.Marshal(n)
	return list, []json.RawMessage{one}, err
}

// remove returns the configuration of a network without plugins of a type.
func remove(file []byte, kind string) ([]byte, error) {
	n, list, err := read(file)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(list), ofType(kind))
	if len(kept) == len(list) {
		return file, nil
	}
	return n.write(kept)
}

// has reports whether a configuration has a plugin of a type.
func has(file []byte, kind string) bool {
	_, list, err := read(file)
	return err == nil && slices.ContainsFunc(list, ofType(kind))
}

func ofType(kind string) func(json.RawMessage) bool {
	return func(m json.RawMessage) bool {
		var n network
		return json.Unmarshal(m, &n) == nil && n.text("type") == kind
	}
}

func (n network) write(list []json.RawMessage) ([]byte, error) {
	var err error
	if n["plugins"], err = json.Marshal(list); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// standalone returns the configuration of a network with no plugin but this one, for runtimes that attach pods to it by name.
func standalone(e Entry) ([]byte, error) {
	return json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Entry
	}{"0.3.1", "istio-cni", e}, "", "  ")
}
