package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	_ "dubbo.apache.org/dubbo-go/v3/filter/accesslog"
	_ "dubbo.apache.org/dubbo-go/v3/filter/echo"
	_ "dubbo.apache.org/dubbo-go/v3/filter/exec_limit"
	_ "dubbo.apache.org/dubbo-go/v3/filter/generic"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/filter/token"
	_ "dubbo.apache.org/dubbo-go/v3/filter/tps"
	"dubbo.apache.org/dubbo-go/v3/global"
	_ "dubbo.apache.org/dubbo-go/v3/metadata/mapping/metadata"
	_ "dubbo.apache.org/dubbo-go/v3/metadata/report/zookeeper"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/dubbo"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
	"dubbo.apache.org/dubbo-go/v3/registry"
	_ "dubbo.apache.org/dubbo-go/v3/registry/directory"
	_ "dubbo.apache.org/dubbo-go/v3/registry/protocol"
	_ "dubbo.apache.org/dubbo-go/v3/registry/zookeeper"
	"dubbo.apache.org/dubbo-go/v3/server"
)

// Greeter is the service. Its name is exported because Dubbo calls no other types.
type Greeter struct{ name string }

// Reference implements the name of the service for Dubbo.
func (*Greeter) Reference() string { return defaultInterface }

// Greet answers with the provider's name. The argument is a command for the providers that it names: `fail:v1,v2` and `slow:v1`.
func (g *Greeter) Greet(ctx context.Context, argument string) (string, error) {
	return g.answer(ctx, "Greet", argument)
}

// Part is another method.
func (g *Greeter) Part(ctx context.Context, argument string) (string, error) {
	return g.answer(ctx, "Part", argument)
}

func (g *Greeter) answer(ctx context.Context, method, argument string) (string, error) {
	what, names, _ := strings.Cut(argument, ":")
	if slices.Contains(strings.Split(names, ","), g.name) {
		switch what {
		case "fail":
			return "", errors.New(g.name + " fails")
		case "slow":
			<-time.After(5 * time.Second)
		}
	}
	fmt.Println("called", method, argument)
	return strings.TrimSpace(g.name + " " + method + " " + attachment(ctx, "userId")), nil
}

// attachment is an attachment of a call; empty for none. Triple has a list of values for each name, and names in lower case.
func attachment(ctx context.Context, name string) string {
	all, _ := ctx.Value(constant.AttachmentKey).(map[string]any)
	for key, value := range all {
		if !strings.EqualFold(key, name) {
			continue
		}
		if list, ok := value.([]string); ok {
			return strings.Join(list, ",")
		}
		return fmt.Sprint(value)
	}
	return ""
}

func provide(s settings) error {
	application := global.DefaultApplicationConfig()
	application.Name = "greeter"
	application.MetadataType = constant.RemoteMetadataStorageType // else Dubbo serves its own interface at the same port
	options := []server.ServerOption{
		server.SetServerApplication(application),
		server.WithServerProtocol(protocol.WithProtocol(s.protocol), protocol.WithIp(s.ip), protocol.WithPort(s.port)),
		server.WithServerRegistry(registry.WithZookeeper(), registry.WithAddress(s.zookeeper), registry.WithRegisterInterface()),
	}
	srv, err := server.NewServer(options...)
	if err != nil {
		return err
	}
	of := []server.ServiceOption{server.WithInterface(defaultInterface), server.WithGroup(s.group), server.WithVersion(s.version)}
	for key, value := range s.params {
		of = append(of, server.WithParam(key, value))
	}
	if err := srv.RegisterService(&Greeter{s.name}, of...); err != nil {
		return err
	}
	return srv.Serve()
}
