package kept

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/run/statefile"
)

// Folder keeps versions in files of a state folder.
type Folder struct {
	Dir statefile.Dir
	// Of names the source of the policies, so that several may use one state folder.
	Of string
}

// name returns the name of the file of a part.
func (f Folder) name(i int) string {
	sum := omap.Sum([]byte(f.Of))
	return fmt.Sprintf("policies-%x-%d.gz", sum[:6], i)
}

// Load reads all versions. The error says which files could not be read; the rest can be used.
func (f Folder) Load() (versions []*api.Object, err error) {
	var errs []error
	for i := range Parts {
		data, err := f.Dir.ReadUnchanged(f.name(i))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var part []*api.Object
		if err == nil {
			if part, err = Decode(data); err != nil {
				err = fmt.Errorf("%s: %w", f.Dir.Path(f.name(i)), err)
			}
		}
		versions, errs = append(versions, part...), append(errs, err)
	}
	return versions, errors.Join(errs...)
}

// Save replaces a part. The file has the old content or the new one, even after a crash.
func (f Folder) Save(i int, data []byte) error { return f.Dir.Replace(f.name(i), data) }
