// Package dubbo turns what registries say of providers of Dubbo into instances and services: the parameters of a provider's URL have the same
// meaning in each registry.
//
// It is pure and starts no goroutines.
package dubbo

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

// suffix is the suffix of hosts of interfaces if the file has none.
const suffix = "dubbo"

// defaultWeight is the weight of a provider of Dubbo that sets none. It counts as 1.
const defaultWeight = 100

// Provider is what the URL of a provider says, or the metadata of its application.
type Provider struct {
	Scheme, Address string
	Port            uint32
	Params          map[string]string
}

// id identifies a provider in its service.
func (p Provider) id() string {
	return p.Scheme + "://" + net.JoinHostPort(p.Address, strconv.Itoa(int(p.Port)))
}

// Instance returns the provider as an instance.
func (p Provider) Instance() registries.Instance {
	port := registries.Port{Number: p.Port, Protocol: Protocol(p.Scheme, p.Params)}
	if p.Scheme == "dubbo" && port.Protocol != mesh.Dubbo.String() {
		port.Remark = fmt.Sprintf("its serialization is %s, and Envoy reads calls in hessian2 only, so that port %d is TCP and calls are not routed; "+
			"let the provider prefer hessian2 (prefer.serialization)", serialization(p.Params), p.Port)
	}
	in := registries.Instance{ID: p.id(), Address: p.Address, Ports: []registries.Port{port}, Labels: Labels(p.Params), Weight: weightOf(p.Params)}
	switch {
	case p.Params["disabled"] == "true":
		in.Down = "disabled is true"
	case p.Params["enabled"] == "false":
		in.Down = "enabled is false"
	}
	return in
}

// goRelease begins the release of providers that are written in Go. They register the weight 0 if none is set, and their consumers then choose
// among them evenly.
const goRelease = "dubbo-golang-"

// weightOf returns the weight of a provider, beside 1 for the default. A text that is no number is returned, so that it is reported.
func weightOf(params map[string]string) string {
	text := cmp.Or(params["weight"], params["default.weight"])
	if text == "" {
		return ""
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	if n == 0 && strings.HasPrefix(params["release"], goRelease) {
		return ""
	}
	return strconv.FormatFloat(n/defaultWeight, 'g', -1, 64)
}

// Protocol returns the protocol of a port. Envoy reads the protocol of Dubbo with Hessian2 only: with another serialization it would break
// connections.
func Protocol(scheme string, params map[string]string) string {
	switch scheme {
	case "dubbo":
		if serialization(params) != "hessian2" {
			return "tcp"
		}
		return mesh.Dubbo.String()
	case "tri":
		return "http2"
	case "grpc":
		return "grpc"
	case "rest", "http":
		return "http"
	}
	return "tcp"
}

// serialization is the serialization of the calls of consumers that follow the provider.
func serialization(params map[string]string) string {
	preferred, _, _ := strings.Cut(params["prefer.serialization"], ",")
	return cmp.Or(params["serialization"], strings.TrimSpace(preferred), "hessian2")
}

// Labels returns the parameters that may be labels. Tags of Dubbo with a key and a value are labels of their own, and go before parameters.
func Labels(params map[string]string) map[string]string {
	labels := make(map[string]string, len(params))
	for k, v := range params {
		switch k {
		case "methods", "timestamp", "pid", tagParam:
		default:
			labels[k] = v
		}
	}
	for part := range strings.SplitSeq(params[tagParam], ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			labels[strings.TrimSpace(key)] = strings.TrimSpace(value)
		} else if part != "" {
			labels[tagParam] = part
		}
	}
	return labels
}

// tagParam is the parameter with the tags of a provider.
const tagParam = "dubbo.tag"

// Interface returns the interface that a provider serves: with another group or version it is another service.
func Interface(name string, params map[string]string) mesh.DubboInterface {
	i := mesh.DubboInterface{
		Interface: name, Group: cmp.Or(params["group"], params["default.group"]), Version: cmp.Or(params["version"], params["default.version"]),
	}
	if i.Version == "0.0.0" {
		i.Version = ""
	}
	return i
}

// hostName is the host of an interface without its suffix.
func hostName(i mesh.DubboInterface) string {
	name := i.Interface
	if i.Group != "" {
		name += "-" + i.Group
	}
	if i.Version != "" {
		name += "-" + strings.ReplaceAll(i.Version, ".", "-")
	}
	return name
}

// Key is the name of the service of an interface among all.
func Key(i mesh.DubboInterface) string {
	return "dubbo:" + i.Interface + ":" + i.Version + ":" + i.Group
}

// Service returns the service of an interface without its instances.
func Service(i mesh.DubboInterface) registries.Service {
	return registries.Service{Listed: i.Interface, HostName: hostName(i), Suffix: suffix, Protocol: "tcp", Dubbo: &i}
}
