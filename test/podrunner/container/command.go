package container

import (
	"errors"
	"os/user"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/podrunner/image"
	"github.com/pilotmesh/pilot/test/podrunner/stage"
)

// Spec is what the container's process becomes: command, environment, directory, identity.
func Spec(facts Facts, spec *v1.Container, img image.Image, sources Sources) (stage.Spec, error) {
	env, err := Environment(facts, spec, img, sources)
	if err != nil {
		return stage.Spec{}, err
	}
	out := stage.Spec{Dir: img.WorkingDir}
	if spec.WorkingDir != "" {
		out.Dir = spec.WorkingDir
	}
	if out.Args = command(spec, img, env); len(out.Args) == 0 {
		return stage.Spec{}, errors.New("no command specified: neither the container nor the image has one")
	}
	if err := Identity(facts.Pod, spec, img, &out); err != nil {
		return stage.Spec{}, err
	}
	if _, has := env["HOME"]; !has {
		env["HOME"] = home(out.User)
	}
	if spec.TTY {
		if _, has := env["TERM"]; !has {
			env["TERM"] = "xterm"
		}
	}
	out.Env = List(env)
	return out, nil
}

// command follows the rule for image and container: a command hides both parts of the image's, args only the second.
func command(spec *v1.Container, img image.Image, env map[string]string) []string {
	var words []string
	switch {
	case len(spec.Command) > 0:
		words = append(append(words, spec.Command...), spec.Args...)
	case len(spec.Args) > 0:
		words = append(append(words, entrypoint(img)...), spec.Args...)
	default:
		return append(entrypoint(img), img.Args...)
	}
	fixed := len(words) - len(spec.Args) - len(spec.Command)
	for i := fixed; i < len(words); i++ {
		words[i] = Expand(words[i], env)
	}
	return words
}

func entrypoint(img image.Image) []string {
	if img.Program == "" {
		return nil
	}
	return []string{img.Program}
}

func home(id int) string {
	if found, err := user.LookupId(strconv.Itoa(id)); err == nil && found.HomeDir != "" {
		return found.HomeDir
	}
	return "/"
}
