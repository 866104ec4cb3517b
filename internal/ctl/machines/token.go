package machines

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// longestToken is how long a token may be valid.
const longestToken = 366 * 24 * time.Hour

// TokenCommand returns token. env has the variables of the environment.
func TokenCommand(env Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Tokens for proxies outside Kubernetes",
	}
	c.AddCommand(tokenCreate(env))
	return c
}

func tokenCreate(env Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "create --service-account NAMESPACE/NAME",
		Short: "Issue a token with which the agent of a proxy shows who it is",
		Long: `create prints a token for a service account. The agent of a proxy shows it to the control plane, gets a certificate for that
service account, and shows the certificate from then on.

The token is signed with a key in the state folder of the control plane, so run this on the host and as the user of the control plane.
The control plane makes the key when it starts. A folder without a key is refused, because no control plane would accept the token.
A holder of the token can act as that service account until it expires: give it to the proxy's host only, in a file that only the agent
can read. To make all tokens invalid, remove token-key.pem from the state folder.`,
		Example: `  pilotctl token create --service-account shop/reviews > reviews.token
  pilot-agent proxy sidecar --discoveryAddress=control-plane.example:15012 --tokenFile=reviews.token ...`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	account := f.String("service-account", "", "the service account, as NAMESPACE/NAME")
	dir := f.String("stateDir", statefile.Default(env), "the state folder of the control plane")
	valid := f.Duration("expiration", 24*time.Hour, "how long the token is valid")
	create := f.Bool("new", false, "make a key if the state folder has none, before the control plane runs for the first time")
	audiences := f.StringSlice("audience", []string{identity.Audience}, "for whom the token is")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if *account == "" {
			return run.Usage(errors.New("--service-account is not set; write NAMESPACE/NAME, such as shop/reviews"))
		}
		namespace, name, err := identity.ParseAccount(*account)
		if err != nil {
			return run.Usage(fmt.Errorf("--service-account: %w", err))
		}
		if *valid < time.Second || *valid > longestToken {
			return run.Usage(fmt.Errorf("--expiration: %v is not between 1s and %v", *valid, longestToken))
		}
		if len(*audiences) == 0 {
			return run.Usage(errors.New("--audience is empty"))
		}
		load := identity.OpenLocalKey
		if *create {
			load = identity.LoadLocalKey
		}
		key, err := load(statefile.Dir(*dir))
		if err != nil {
			return err
		}
		token, err := key.Issue(namespace, name, *audiences, time.Now(), *valid)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "token for %s/%s, valid until %s\n", namespace, name, time.Now().Add(*valid).UTC().Format(time.RFC3339))
		_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
		return err
	}
	return c
}
