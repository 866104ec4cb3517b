package syntax

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// Lua checks the syntax of code in Lua, which Envoy refuses together with all that is around it if it cannot be read. The reason says where it cannot be read;
// empty if it can.
func Lua(code string) (reason string) {
	_, err := parse.Parse(strings.NewReader(code), "")
	var at *parse.Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &at):
		return "the code in Lua cannot be read: " + strings.TrimSpace(err.Error())
	case at.Pos.Line == parse.EOF:
		return "the code in Lua cannot be read: it ends too early"
	}
	return fmt.Sprintf("the code in Lua cannot be read: line %d, column %d, near %q: %s", at.Pos.Line, at.Pos.Column, at.Token, at.Message)
}
