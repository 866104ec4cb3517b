package servers

import (
	"context"
	"fmt"
	"net/http"
)

// operations is how many operations Consul takes in one transaction.
const operations = 64

// RegisterAll registers many instances, each with one check, in few requests.
func (c *Consul) RegisterAll(ctx context.Context, list []Instance) error {
	var body []any
	nodes := map[string]bool{}
	flush := func() error {
		if len(body) == 0 {
			return nil
		}
		_, err := c.Call(ctx, http.MethodPut, "/v1/txn", body)
		body = nil
		return err
	}
	for _, i := range list {
		if len(body) > operations-3 {
			if err := flush(); err != nil {
				return fmt.Errorf("registering %s: %w", i.id(), err)
			}
		}
		if !nodes[i.Node] {
			nodes[i.Node] = true
			body = append(body, map[string]any{"Node": map[string]any{"Verb": "set", "Node": map[string]any{"Node": i.Node, "Address": nodeAddress}}})
		}
		body = append(body,
			map[string]any{"Service": map[string]any{"Verb": "set", "Node": i.Node, "Service": i.service()}},
			map[string]any{"Check": map[string]any{"Verb": "set", "Check": i.check()}})
	}
	return flush()
}
