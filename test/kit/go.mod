module github.com/pilotmesh/pilot/test/kit

go 1.27.0

toolchain go1.27.4
