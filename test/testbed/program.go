package testbed

import (
	"context"
	"net/http"

	"github.com/pilotmesh/pilot/test/kit/process"
)

// Program is any other program that runs beside a mesh.
type Program struct{ process *process.Process }

// StartProgram runs a program with its output appended to dir/name.log, and waits for nothing.
func StartProgram(name, dir, path string, args ...string) (*Program, error) {
	p, err := start(nil, name, dir, path, args...)
	return &Program{p}, err
}

// AwaitAnswer waits until a page of the program is answered.
func (p *Program) AwaitAnswer(ctx context.Context, url string) error {
	return ready(ctx, p.process, p.process.Name()+" to answer", func(ctx context.Context) error {
		_, err := get(ctx, http.DefaultClient, url)
		return err
	})
}

// Stop ends the program in order.
func (p *Program) Stop() { stop(p.process) }
