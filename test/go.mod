module github.com/pilotmesh/pilot/test

go 1.27.0

toolchain go1.27.4

replace github.com/pilotmesh/pilot => ../
