// Command dubbo is a provider or a consumer of Apache Dubbo, for tests of the control plane with real programs of Dubbo: in the protocol
// `dubbo` with Hessian2, and in Triple (`tri`).
//
//	dubbo provide -zookeeper=127.0.0.1:2181 -protocol=dubbo -ip=10.1.0.2 -port=20880 -name=v1 -param=zone=a
//	dubbo consume -zookeeper=127.0.0.1:2181 -protocol=dubbo -method=Greet -calls=100
//	dubbo consume -url=tri://greeter.dubbo:50051 -protocol=tri -attach=userId=jason
//
// A provider registers itself in ZooKeeper and serves until it is ended. A consumer prints one line for each call: `ok` and the answer, or
// `error` and the message. The program is a module of its own, so that the dependencies of Dubbo are in no other module.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dubbo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("use `dubbo provide` or `dubbo consume`")
	}
	s := settings{params: pairs{}, attach: pairs{}}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	s.common(flags)
	var do func(settings) error
	switch args[0] {
	case "provide":
		s.ofProvider(flags)
		do = provide
	case "consume":
		s.ofConsumer(flags)
		do = consume
	default:
		return fmt.Errorf("%q is no command: use `dubbo provide` or `dubbo consume`", args[0])
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return do(s)
}

// settings are the flags of both commands.
type settings struct {
	zookeeper, protocol, name, group, version string

	// Of a provider.
	ip     string
	port   int
	params pairs

	// Of a consumer.
	url, method, argument string
	calls                 int
	attach                pairs
	retries               int
}

// defaultInterface is the interface unless -interface names another one.
const defaultInterface = "com.acme.Greeter"

func (s *settings) common(f *flag.FlagSet) {
	f.StringVar(&s.zookeeper, "zookeeper", "", "host:port of the ZooKeeper in which providers are registered")
	f.StringVar(&s.protocol, "protocol", "dubbo", "dubbo or tri")
	f.StringVar(&s.group, "group", "", "group of the interface")
	f.StringVar(&s.version, "version", "", "version of the interface")
}

func (s *settings) ofProvider(f *flag.FlagSet) {
	f.StringVar(&s.name, "name", "v1", "what the provider calls itself in answers")
	f.StringVar(&s.ip, "ip", "", "address at which the provider listens and registers itself")
	f.IntVar(&s.port, "port", 20880, "port of the provider")
	f.Var(s.params, "param", "KEY=VALUE of the URL of the provider; may be repeated")
}

func (s *settings) ofConsumer(f *flag.FlagSet) {
	f.StringVar(&s.url, "url", "", "PROTOCOL://HOST:PORT of the provider, instead of ZooKeeper")
	f.StringVar(&s.method, "method", "Greet", "Greet or Part")
	f.StringVar(&s.argument, "argument", "", "argument of the method")
	f.IntVar(&s.calls, "calls", 1, "number of calls")
	f.IntVar(&s.retries, "retries", 0, "how often Dubbo itself repeats a failed call")
	f.Var(s.attach, "attach", "KEY=VALUE that is attached to calls; may be repeated")
}

// pairs are flags KEY=VALUE.
type pairs map[string]string

// String implements flag.Value.
func (p pairs) String() string { return fmt.Sprint(map[string]string(p)) }

// Set implements flag.Value.
func (p pairs) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q is not KEY=VALUE", text)
	}
	p[key] = value
	return nil
}
