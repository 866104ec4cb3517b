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

// secretsSocket returns the path of the socket from which Envoy gets certificates and keys. It is Istio's path, or a path in
// the directory of the bootstrap if that is not the default, so that several agents can run on one host.
func secretsSocket(s *config.Settings) string {
	own := s.Proxy.GetConfigPath()
	switch {
	case s.IdentitySocket != "":
		return config.IdentityDir + "/" + s.IdentitySocket
	case own == "" || samePath(own, config.DefaultConfigPath):
		return config.IdentityDir + "/socket"
	}
	return filepath.Join(own, "secrets.sock")
}

// hasCertificate reports whether the workload may have a certificate of the mesh: another program serves secrets, or certificate files
// are mounted.
func hasCertificate(s *config.Settings) bool { return s.IdentitySocket != "" || secret.Mounted() }

// samePath reports whether two paths are equal when resolved from the agent's working directory.
func samePath(a, b string) bool {
	first, err := filepath.Abs(a)
	if err != nil {
		return false
	}
	second, err := filepath.Abs(b)
	return err == nil && first == second
}

// serveSecrets adds the server of certificates and keys to the group, unless another program serves them.
func serveSecrets(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, log *slog.Logger) (*secret.Board, error) {
	board, socket := secret.NewBoard(log), c.SecretsSocket
	group.Add(run.Actor{Name: "secrets", Run: board.Run})
	if s.IdentitySocket != "" {
		log.Info("another program serves secrets (WORKLOAD_IDENTITY_SOCKET_FILE)", "socket", socket)
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
	// The group stops this server after Envoy has ended, so no client is left to wait for.
	group.Add(run.GRPC("secrets' socket", l, server, func(context.Context) {}, 0))
	return board, nil
}
