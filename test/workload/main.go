// Command workload is what runs in the pods of test clusters: one static program with two roles.
//
//	workload serve --name a --http :8080 --grpc :9090 ...   answers, and says in its answers what it saw
//	workload call --duration 10s --qps 100 http://a:8080/    sends requests, and sums up what came back
//
// A server speaks HTTP/1.1 and HTTP/2 without TLS on one port, the same within TLS, gRPC, TCP where the server speaks
// first, TCP where the client does, and UDP. Every answer is one JSON object, an echo.Report. On SIGTERM a server finishes its work and then ends.
//
// Its goroutines belong to package echo; serve waits for all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	const usage = "usage: workload serve|call [flags]; `workload serve -h` and `workload call -h` list them"
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], os.Stdout)
	case "call":
		return call(ctx, args[1:], os.Stdout)
	}
	return fmt.Errorf("unknown role %q; %s", args[0], usage)
}
