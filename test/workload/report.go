package main

import (
	"net"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

// about reports a connection that nothing was read from yet.
func (s *server) about(protocol string, remote, local net.Addr) echo.Report {
	return s.sign(echo.About(protocol, remote, local))
}

// sign adds who reports.
func (s *server) sign(r echo.Report) echo.Report {
	r.Name, r.Version = s.name, s.version
	return r
}
