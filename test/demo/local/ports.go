package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/pilotmesh/pilot/test/testbed"
)

// samplePort matches the ports of the sample.
var samplePort = regexp.MustCompile(`\b90[1-4]\d\b`)

// portsIn matches the ports in a list of calls.
var portsIn = regexp.MustCompile(`\d{4,}`)

// Shift moves the sample's ports to where they are free.
func (s *Stage) Shift(text string) string {
	return samplePort.ReplaceAllStringFunc(text, func(port string) string {
		n, _ := strconv.Atoi(port)
		return strconv.Itoa(n + s.Offset)
	})
}

// Copy copies the YAML files of a folder of the sample, with the ports of this run. edit, if it is not nil, makes more changes.
func (s *Stage) Copy(from, to string, edit func(string) string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no sample in %s: %w", from, errors.Join(err, os.ErrNotExist))
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		shifted := s.Shift(string(text))
		if edit != nil {
			shifted = edit(shifted)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), []byte(shifted), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// TakePorts finds how far the sample's ports have to be moved because of what else runs on this machine, and keeps
// other demos from taking the same ones. more are further ports of 127.0.0.1.
func (s *Stage) TakePorts(list []Workload, more ...int) (err error) {
	for _, s.Offset = range []int{0, 10000, 20000, 1000, 11000} {
		// A sidecar could share its port with another demo's without an error, so there is one port that cannot be shared.
		if s.lock, err = net.Listen("tcp", testbed.Loopback(9000+s.Offset)); err != nil {
			continue
		}
		err = s.free(list, more)
		if err == nil {
			return nil
		}
		s.lock.Close()
	}
	return fmt.Errorf("the bookstore finds no ports: %w; stop what listens there (ss -tlnp shows it; other demos, maybe), "+
		"and note that this needs Linux, where all of 127.0.0.0/8 is this machine", err)
}

// free reports ports that are taken.
func (s *Stage) free(list []Workload, more []int) error {
	var errs []error
	for _, port := range more {
		errs = append(errs, bindable(testbed.Loopback(port+s.Offset)))
	}
	for _, w := range list {
		port := strconv.Itoa(w.Port + s.Offset)
		errs = append(errs, bindable("127.0.0.1:"+port), bindable(w.Address+":"+port))
		for _, call := range portsIn.FindAllString(s.Shift(w.Calls), -1) {
			errs = append(errs, bindable("127.0.0.1:"+call))
		}
	}
	return errors.Join(errs...)
}

func bindable(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
