package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

func consume(s settings) error {
	options := []client.ClientOption{client.WithClientRequestTimeout(10 * time.Second)}
	if s.zookeeper != "" {
		options = append(options, client.WithClientRegistry(registry.WithZookeeper(), registry.WithAddress(s.zookeeper), registry.WithRegisterInterface()))
	}
	c, err := client.NewClient(options...)
	if err != nil {
		return err
	}
	of := []client.ReferenceOption{
		client.WithProtocol(s.protocol), client.WithGroup(s.group), client.WithVersion(s.version), client.WithRetries(s.retries),
		client.WithSerialization(constant.Hessian2Serialization), client.WithIDL(constant.NONIDL), client.WithRequestTimeout(10 * time.Second),
	}
	if s.url != "" {
		of = append(of, client.WithURL(s.url))
	}
	connection, err := c.DialWithService(defaultInterface, &Greeter{}, of...)
	if err != nil {
		return err
	}
	for range s.calls {
		attached := map[string]any{}
		for key, value := range s.attach {
			attached[key] = value
		}
		ctx := context.WithValue(context.Background(), constant.AttachmentKey, attached)
		var answer string
		if err := connection.CallUnary(ctx, []any{s.argument}, &answer, s.method); err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println("ok", answer)
	}
	return nil
}
