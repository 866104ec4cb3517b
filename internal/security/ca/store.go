package ca

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pilotmesh/pilot/internal/run/statefile"
)

// Store remembers a self-signed authority.
type Store interface {
	// Update reads the stored data, calls change, and stores the result of change unless that is nil. kept is nil if nothing is stored, or
	// if the stored data cannot be decoded; damage then has the reason. Update calls change again if another program has changed the data in
	// between. It returns the data that are stored at the end.
	Update(ctx context.Context, change func(kept map[string][]byte, damage error) (map[string][]byte, error)) (map[string][]byte, error)
}

// File is a store in a state folder. Beside the file with the keys it keeps one with the roots, which all users may read.
type File struct{ Dir statefile.Dir }

// Names of files in the state folder.
const (
	keptFile = "ca.json"
	// rootsFile has the roots, as PEM.
	rootsFile = "root-cert.pem"
)

// Update implements Store.
func (f File) Update(_ context.Context, change func(map[string][]byte, error) (map[string][]byte, error)) (map[string][]byte, error) {
	release, err := f.Dir.Lock()
	if err != nil {
		return nil, err
	}
	defer release()
	var kept map[string][]byte
	var damage error
	content, err := f.Dir.Read(keptFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		kept, damage = decodeKept(content)
	}
	next, err := change(kept, damage)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Dir.Path(keptFile), err)
	}
	if next != nil {
		text := map[string]string{}
		for name, value := range next {
			text[name] = string(value)
		}
		b, err := json.MarshalIndent(text, "", "  ")
		if err != nil {
			return nil, err
		}
		if err := f.Dir.Replace(keptFile, append(b, '\n')); err != nil {
			return nil, err
		}
		kept = next
	}
	if was, err := os.ReadFile(f.Dir.Path(rootsFile)); err == nil && bytes.Equal(was, kept[keptRoots]) {
		return kept, nil
	}
	return kept, f.Dir.Publish(rootsFile, kept[keptRoots])
}

func decodeKept(content []byte) (map[string][]byte, error) {
	var text map[string]string
	if err := json.Unmarshal(content, &text); err != nil || text == nil {
		return nil, errors.New("it is no JSON")
	}
	kept := map[string][]byte{}
	for name, value := range text {
		kept[name] = []byte(value)
	}
	return kept, nil
}
