package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

const jar = "/usr/share/java/zookeeper.jar"

// NewZooKeeper prepares a ZooKeeper with its files in dir, whose data survive a kill. The error is Missing if Java or ZooKeeper is not here.
func NewZooKeeper(dir string) (*Server, error) { return NewZooKeeperIn(dir, Place{Host: "127.0.0.1"}) }

// NewZooKeeperIn is NewZooKeeper for a ZooKeeper in another place.
func NewZooKeeperIn(dir string, place Place) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, &Missing{"Java", "install a Java runtime, such as the package default-jre-headless of Debian"}
	}
	if _, err := os.Stat(jar); err != nil {
		return nil, &Missing{"ZooKeeper", "install the package zookeeper of Debian; make tools-registries does that as root"}
	}
	s, err := newServer("zookeeper", dir)
	if err != nil {
		return nil, err
	}
	s.place = place
	s.data = filepath.Join(dir, "zookeeper-data")
	config := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=500\nminSessionTimeout=1000\nmaxClientCnxns=0\ndataDir=%s\nclientPort=%d\nclientPortAddress=%s\nadmin.enableServer=false\n"+
		"4lw.commands.whitelist=srvr\n", s.data, s.Port, place.Host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s.command = func() *exec.Cmd {
		cmd := exec.Command(java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jar, "org.apache.zookeeper.server.ZooKeeperServerMain", config)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who end it in order
		return cmd
	}
	s.ready = func(ctx context.Context) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("srvr"))
		b := make([]byte, 1000)
		if n, _ := c.Read(b); !strings.Contains(string(b[:n]), "Zookeeper version") {
			return errors.New("it does not serve yet")
		}
		return nil
	}
	return s, nil
}

// quiet is a logger that discards the messages of the client.
type quiet struct{}

// Printf implements zk.Logger.
func (quiet) Printf(string, ...any) {}

// Session is a client of ZooKeeper.
type Session struct {
	*zk.Conn
	server *Server
	mu     sync.Mutex
	dead   bool
	open   []net.Conn
}

// NewSession connects to a ZooKeeper. timeout is how long its ephemeral nodes stay after it is lost.
func NewSession(s *Server, timeout time.Duration) (*Session, error) {
	c := &Session{server: s}
	conn, _, err := zk.Connect([]string{s.Address()}, timeout, zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(c.dial))
	c.Conn = conn
	return c, err
}

func (c *Session) dial(_, _ string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, errors.New("the client is dead")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := c.server.dial(ctx)
	if err == nil {
		c.open = append(c.open, conn)
	}
	return conn, err
}

// Die ends the connections as the death of the client's machine would: the server keeps the session until its timeout.
func (c *Session) Die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for _, conn := range c.open {
		conn.Close()
	}
}

// Put creates a node with the nodes above it.
func (c *Session) Put(at, data string, flags int32) error {
	for i := 1; i < len(at); i++ {
		if at[i] == '/' {
			if _, err := c.Create(at[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return err
			}
		}
	}
	_, err := c.Create(at, []byte(data), flags, zk.WorldACL(zk.PermAll))
	return err
}
