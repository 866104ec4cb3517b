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
	call, err := dial(c, s, of)
	if err != nil {
		return err
	}
	for range s.calls {
		attached := map[string]any{}
		for key, value := range s.attach {
			attached[key] = value
		}
		answer, err := call(context.WithValue(context.Background(), constant.AttachmentKey, attached), s.argument)
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println("ok", answer)
	}
	return nil
}

// method calls a method of the service. The attachments of the call are in the context.
type method func(ctx context.Context, argument string) (string, error)

// Stub has a function for each method of the service, which Dubbo makes.
type Stub struct{ Greet, Part method }

// Reference implements the name of the service for Dubbo.
func (*Stub) Reference() string { return defaultInterface }

// dial finds the method of a consumer. The two protocols differ in the calls that take attachments from the context. In the protocol dubbo these are
// the functions that Dubbo makes, and CallUnary drops attachments. In Triple it is CallUnary, which wants the methods of a provider.
func dial(c *client.Client, s settings, of []client.ReferenceOption) (method, error) {
	if s.protocol == constant.TriProtocol {
		connection, err := c.DialWithService(defaultInterface, &Greeter{}, of...)
		return func(ctx context.Context, argument string) (answer string, err error) {
			err = connection.CallUnary(ctx, []any{argument}, &answer, s.method)
			return answer, err
		}, err
	}
	stub := &Stub{}
	_, err := c.DialWithService(defaultInterface, stub, of...)
	call, ok := map[string]method{"Greet": stub.Greet, "Part": stub.Part}[s.method]
	if err == nil && !ok {
		err = fmt.Errorf("%q is no method: use Greet or Part", s.method)
	}
	return call, err
}
