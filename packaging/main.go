package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/packaging/debian"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{"deb": debCommand, "release": releaseCommand, "pin": pinCommand}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("say what to make: deb, release or pin (`make release VERSION=1.2.3` says it for you)")
	}
	return commands[args[0]](ctx, args[1:])
}

// pinCommand writes the list of Debian's packages.
func pinCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("packaging pin", flag.ExitOnError)
	s := debian.Store{}
	f.StringVar(&s.Dir, "debian", "../.tools/debian", "the folder for packages of Debian")
	f.StringVar(&s.Mirror, "mirror", debian.Mirror, "where packages of Debian come from")
	if err := f.Parse(args); err != nil {
		return err
	}
	text, err := s.Pin(ctx, time.Now().UTC().Format("20060102T000000Z"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("debian", "list.txt"), []byte(text), 0o644)
}
