// Podrunner-init is the first program of every container: it finishes the setup that must happen inside the container's namespaces, then becomes the
// container's own program. It is no use by itself.
package main

import (
	"os"

	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

func main() { os.Exit(stage.Run()) }
