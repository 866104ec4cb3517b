package rules

import (
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"
	proxyconfig "istio.io/api/networking/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// ProxyConfig checks a ProxyConfig.
func ProxyConfig(s *proxyconfig.ProxyConfig, about About) []document.Finding {
	return checkSpec(s, about, func(*checker, *document.Path) {})
}

// wasm has the fields for a module of WebAssembly that a WasmPlugin and a TrafficExtension share.
type wasm interface {
	GetUrl() string
	GetSha256() string
	GetVmConfig() *extensions.VmConfig
}

// WasmPlugin checks a WasmPlugin.
func WasmPlugin(s *extensions.WasmPlugin, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.attachment(at, s.Selector, s.TargetRef, s.TargetRefs)
		c.wasm(at, s)
		for i, m := range s.Match {
			c.matchedPorts(at.Field("match").At(i), m.GetPorts())
		}
	})
}

// TrafficExtension checks a TrafficExtension.
func TrafficExtension(s *extensions.TrafficExtension, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.attachment(at, s.Selector, nil, s.TargetRefs)
		switch {
		case s.FilterConfig == nil:
			c.Fail(at, "an extension needs wasm or lua")
		case s.GetWasm() != nil:
			c.wasm(at.Field("wasm"), s.GetWasm())
		default:
			c.lua(at.Field("lua").Field("inlineCode"), s.GetLua().GetInlineCode())
		}
		for i, m := range s.Match {
			c.matchedPorts(at.Field("match").At(i), m.GetPorts())
		}
	})
}

// lua warns of code that cannot be read. It is no error, because Envoy's interpreter takes some forms that the language does not have.
func (c *checker) lua(p *document.Path, code string) {
	if reason := syntax.Lua(code); reason != "" {
		c.Warn(p, "%s; Envoy refuses such code together with its listener or route: correct it", reason)
	}
}

func (c *checker) wasm(p *document.Path, w wasm) {
	if w.GetUrl() != "" {
		c.Rule(p.Field("url"), syntax.ModuleURL(w.GetUrl()))
	}
	if sum := w.GetSha256(); sum != "" && (len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "") {
		c.Fail(p.Field("sha256"), "must be 64 digits from 0 to 9 and from a to f; sha256sum prints it")
	}
	seen := map[string]bool{}
	for i, e := range w.GetVmConfig().GetEnv() {
		at := p.Field("vmConfig").Field("env").At(i)
		if seen[e.GetName()] && e.GetName() != "" {
			c.Fail(at.Field("name"), "%s is set twice; remove one of them", document.Quote(e.GetName()))
		}
		seen[e.GetName()] = true
		if e.GetValueFrom() == extensions.EnvValueSource_HOST && e.GetValue() != "" {
			c.Fail(at.Field("value"), "excludes valueFrom: HOST, which takes the value from the proxy's own environment; keep one of them")
		}
	}
}

func (c *checker) matchedPorts(p *document.Path, ports []*typev1beta1.PortSelector) {
	seen := map[uint32]bool{}
	for i, port := range ports {
		if n := port.GetNumber(); n != 0 && seen[n] {
			c.Fail(p.Field("ports").At(i).Field("number"), "%d is named twice; remove one of them", n)
		}
		seen[port.GetNumber()] = true
	}
}
