package agent

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/secret"
	"github.com/pilotmesh/pilot/internal/run"
)

// secretsSocket is where Envoy looks for certificates and keys: where Istio has it, or, of an agent with a directory of
// its own, in that. So agents can run beside each other.
func secretsSocket(s *config.Settings) string {
	own := s.Proxy.GetConfigPath()
	switch {
	case s.IdentitySocket != "":
		return config.IdentityDir + "/" + s.IdentitySocket
	case own == "" || same(own, config.DefaultConfigPath):
		return config.IdentityDir + "/socket"
	}
	return filepath.Join(own, "secrets.sock")
}

// same reports whether two paths are the same, from where the agent runs.
func same(a, b string) bool {
	first, err := filepath.Abs(a)
	if err != nil {
		return false
	}
	second, err := filepath.Abs(b)
	return err == nil && first == second
}

// serveSecrets adds to the group what serves certificates and keys at the socket, unless somebody else does.
func serveSecrets(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, log *slog.Logger) (*secret.Board, error) {
	board, socket := secret.NewBoard(log), c.SecretsSocket
	group.Add(run.Actor{Name: "secrets", Run: board.Run})
	if s.IdentitySocket != "" {
		log.Info("secrets are somebody else's to serve (WORKLOAD_IDENTITY_SOCKET_FILE)", "socket", socket)
		return board, nil
	}
	l, err := secret.Listen(ctx, socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	secret.NewServer(board).Register(server)
	group.Add(run.Actor{Name: "certificate files", Run: secret.NewFiles(board, log).Run})
	group.Add(run.Actor{Name: "report of missing secrets", Run: secret.NewReporter(board, s.Proxy.GetDiscoveryAddress(), c.Node, log).Run})
	// Envoy has ended when this is told to: there is nobody to wait for.
	group.Add(run.GRPC("secrets' socket", l, server, func() {}, 0))
	return board, nil
}
