package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/install/migrate"
	"github.com/pilotmesh/pilot/internal/run"
)

// fromIstio are the flags of check --from-istio.
type fromIstio struct {
	on    bool
	files []string
}

// run says what of a mesh of Istio behaves differently.
func (f *fromIstio) run(ctx context.Context, out, remarks io.Writer, cluster *console.Cluster, form string, timeout time.Duration) error {
	m := migrate.New(config.VariableRemarks)
	for _, path := range f.files {
		if err := migrateFiles(m, path); err != nil {
			return run.Usage(err)
		}
	}
	if len(f.files) == 0 {
		access, err := cluster.Connect()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		left, err := m.Read(ctx, access, cluster.Namespace)
		for _, one := range left {
			fmt.Fprintln(remarks, "not read:", one)
		}
		if err != nil {
			return err
		}
	}
	list := m.Findings()
	if list == nil {
		list = []migrate.Finding{}
	}
	if err := show(out, form, list, func(w io.Writer) error { return writeMigration(w, m, list) }); err != nil {
		return err
	}
	for _, one := range list {
		if one.Effect != migrate.Differs {
			return run.ErrFailed
		}
	}
	return nil
}

// migrateFiles adds a file, or the files of a directory.
func migrateFiles(m *migrate.Mesh, path string) error {
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name != path && !document(name) {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if api.SettingsKind(data) == "MeshConfig" {
			m.Analysis.Mesh(name, data)
		} else {
			m.File(name, data)
		}
		return nil
	})
}

// writeMigration writes findings as text.
func writeMigration(w io.Writer, m *migrate.Mesh, list []migrate.Finding) error {
	p := painter(w)
	colors := map[migrate.Effect]color{migrate.Refused: red, migrate.Ignored: yellow, migrate.Differs: green}
	counts := map[migrate.Effect]int{}
	for _, f := range list {
		counts[f.Effect]++
		where := f.Object
		if f.Field != "" {
			where += ": " + f.Field
		}
		if f.Position != "" {
			where = f.Position + ": " + where
		}
		fmt.Fprintf(w, "%s  %s: %s\n         %s (%s)\n", p.in(colors[f.Effect], fmt.Sprintf("%-7s", f.Effect)), where, f.Reason, f.Remedy, f.Page)
	}
	_, err := fmt.Fprintf(w, "%s: %d refused, %d ignored; %s to read about\n", count(m.Analysis.Objects, "usable object"),
		counts[migrate.Refused], counts[migrate.Ignored], count(counts[migrate.Differs], "area"))
	return err
}
