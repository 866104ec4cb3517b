package route

import (
	"slices"
	"strings"
)

// PieceName is the name of the piece that is a host's virtual host on a port.
func PieceName(host string, port uint32) string { return pieceName(host, port) }

// VirtualHostOf is the name of the virtual host that a piece is: the host with its labels in their usual order, and the
// port.
func VirtualHostOf(piece string) string {
	at := strings.LastIndexByte(piece, ':')
	if at < 0 {
		return piece
	}
	labels := strings.Split(piece[:at], ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + piece[at:]
}
