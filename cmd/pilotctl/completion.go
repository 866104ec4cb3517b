package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/ctl/console"
)

// addCompletions completes the values of flags of a command and the commands below it. Names come from the control plane; without an answer there are
// none, because completion cannot show an error.
func addCompletions(c *cobra.Command) {
	for _, sub := range c.Commands() {
		addCompletions(sub)
	}
	set := c.Flags()
	complete := func(flag string, names func(context.Context, string) []string) {
		// It fails for flags that do not exist only.
		_ = c.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			address := ""
			if f := set.Lookup("address"); f != nil {
				address = f.Value.String()
			}
			return names(cmd.Context(), address), cobra.ShellCompDirectiveNoFileComp
		})
	}
	if f := set.Lookup("output"); f != nil && f.DefValue == text {
		complete("output", func(context.Context, string) []string { return console.Forms() })
	}
	if set.Lookup("address") == nil {
		return
	}
	if f := set.Lookup("namespace"); f != nil && f.DefValue != console.ControlNamespace {
		complete("namespace", console.NamespaceNames)
	}
	if set.Lookup("kind") != nil {
		complete("kind", func(context.Context, string) []string { return kindNames() })
	}
	if set.Lookup("to") != nil {
		complete("to", console.DestinationNames)
	}
}

// completeKindAndName completes one argument that is KIND/NAME of an object of a namespace.
func completeKindAndName(address, namespace *string) cobra.CompletionFunc {
	return console.Objects(address, func(o admin.Object) string {
		if o.Namespace != *namespace {
			return ""
		}
		return strings.ToLower(o.Kind) + "/" + o.Name
	})
}

func kindNames() (names []string) {
	for _, k := range api.Kinds() {
		names = append(names, k.Name)
	}
	return names
}
