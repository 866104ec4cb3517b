package arch

// module is the import path all packages of the product begin with.
const module = "github.com/pilotmesh/pilot/"

// flow is the architecture in data order: each package, and the packages of internal/ that it may import. "x/..." means
// x and all below it; the first row that matches a package counts. Imports of tests are not restricted.
var flow = []struct{ pkg, imports string }{
	// The kernel: nothing in it knows what a mesh is.
	{"omap", ""},
	{"slab", ""},
	{"fair", ""},
	{"intern", ""},
	{"links", ""},
	{"statefile", ""},
	{"identity", "statefile"},
	{"credential", ""},
	{"filewatch", "links"},
	{"spelling", ""},
	{"compliance", ""},
	{"safedial", ""},
	{"store", "omap slab"},
	{"query", "omap slab store"},
	// The vocabulary: values without behaviour of their own.
	{"mesh", "intern omap"},
	{"kube", "credential intern mesh"},
	{"api/code", ""},
	{"api/document", "api/code spelling"},
	{"api/ingress", ""},
	{"api/rules/syntax", "api/document"},
	{"api/rules/envoy", ""},
	{"api/rules/presence", "api/document"},
	{"api/rules/kube", "api/document api/ingress api/rules/syntax"},
	{"api/rules", "api/document api/rules/envoy api/rules/syntax mesh"},
	{"api", "api/code api/document api/ingress api/rules/... api/rules mesh omap"},
	{"gateways", "api/ingress mesh"},
	{"rejection", "api"},
	{"proxy", "api identity intern mesh omap"},
	// From the outside world to rows.
	{"source/remote", "api kube source source/kube"},
	{"source/kept", "api omap statefile"},
	{"source/folder", "api credential filewatch kube source"},
	{"source/object", "api intern kube mesh"},
	{"source/...", "api credential intern kube links mesh omap run source source/kept source/object"},
	{"state/connected", "api omap proxy rejection store"},
	{"state/settings", "api compliance gateways intern mesh store"},
	{"state", "api api/ingress compliance gateways intern kube mesh omap source state/... store"},
	// From rows to the objects that a class may see and must obey.
	{"view/...", "api api/code api/ingress gateways intern kube mesh omap proxy query spelling state/... store view/..."},
	// From there to Envoy's types. Translators know neither each other, nor the store, nor the sources.
	{"xds/nds", ""},
	{"xds/resource", "omap store xds/nds"},
	{"xds/envoy", "compliance mesh omap xds/resource"},
	{"xds/authz", "api mesh omap proxy query state/... view/... xds/envoy"},
	{"xds/access", ""},
	{"xds/layer", "mesh omap query view/..."},
	{"xds/patch", "api mesh omap proxy query state/... view/... xds/envoy xds/resource"},
	{"xds/cluster", translator},
	{"xds/endpoint", translator},
	{"xds/listener", translator},
	{"xds/route", translator},
	{"xds/secret", translator + " credential kube"},
	{"xds/nametable", translator},
	{"xds/grpc", translator},
	{"xds/class", "api api/code intern mesh omap proxy query rejection state/... view/... " + translators + " xds/authz xds/envoy xds/layer xds/resource"},
	// The loop joins everything; the streams see resources only.
	{"xds/explain", "api api/ingress gateways identity intern kube mesh omap proxy query spelling state/... store view/... xds/access xds/authz xds/class xds/envoy xds/resource xds/route"},
	{"arrivals", ""},
	{"logging", "spelling"},
	{"variables", "spelling"},
	{"xds/push", "api arrivals identity mesh omap proxy query rejection run source state/... store view/... xds/..."},
	{"xds/request", "omap xds/resource"},
	{"xds/gate", ""},
	{"xds/protocol/reject", "omap xds/resource"},
	{"xds/protocol", "omap store xds/protocol/reject xds/request xds/resource"},
	{"xds/server", "identity store xds/gate xds/protocol xds/protocol/reject xds/request xds/resource"},
	// Around the flow.
	{"run", ""},
	{"config", "api compliance identity logging mesh statefile variables"},
	{"admission", "identity"},
	{"ca", "admission compliance filewatch identity statefile"},
	{"inject", "api mesh"},
	{"admin", "api api/code ca identity kube live logging mesh omap proxy query rejection run source state/... store xds/class xds/explain xds/protocol xds/push xds/resource xds/server"},
	{"live", "api proxy store xds/push xds/resource xds/server"},
	{"status", "api live omap state/... xds/class xds/push xds/server"},
	{"impersonation", "api identity kube state/... xds/push"},
	{"allocate", "api omap view/allocation xds/push"},
	{"jwks", "api fair omap safedial source state/... xds/push"},
	{"permission", "api fair kube omap source state/... xds/push xds/resource xds/secret"},
	{"register", "api kube omap source state/... view/registration xds/push"},
	{"cluster", "api identity register source/kept state/... status view/registration"},
	{"analyze", "api kube mesh omap query source source/object state/... store xds/class xds/explain"},
	{"agent/...", "agent/... api/document ca compliance config credential filewatch links logging mesh omap run safedial variables xds/envoy xds/nds"},
	{"capture/settings", ""},
	{"capture/rules", "capture/settings"},
	{"capture/iptables", "capture/rules capture/settings"},
	{"capture/nftables", "capture/rules capture/settings"},
	{"capture/routes", "capture/rules capture/settings"},
	{"capture/probe", "capture/rules capture/settings"},
	{"capture", "capture/..."},
	{"vm", "api"},
	{"arch", ""},
	{"reference", ""},
	{"collateral", ""},
	// Only tests import it: no other row names it.
	{"meshtest", "api kube mesh omap proxy query source state/... store xds/..."},
}

// The packages that every translator may import, and the translators.
const (
	translator  = "api compliance gateways intern mesh omap proxy query state/... view/... xds/authz xds/envoy xds/layer xds/nds xds/patch xds/resource"
	translators = "xds/cluster xds/endpoint xds/listener xds/route xds/secret xds/nametable xds/grpc xds/patch"
)

// outside says which packages may import from which other modules: a prefix of import paths, and the only places for it.
// The longest prefix counts. Imports that match no row are free.
var outside = []struct{ prefix, only, why string }{
	{"github.com/envoyproxy/go-control-plane", "api/rules/envoy xds/... agent/... meshtest", "everything before xds must not know Envoy, except for the check of what users patch in its messages"},
	{"github.com/cncf/xds", "xds/... agent/... meshtest", "everything before xds must not know Envoy"},
	{"k8s.io/", "source/... cluster inject", "Kubernetes is one source among others"},
	{"sigs.k8s.io/controller-runtime", "source/... inject", "Kubernetes is one source among others"},
	{"sigs.k8s.io/gateway-api", "source/... inject", "Kubernetes is one source among others"},
	{"istio.io/api", "api/... source/... state/... view/... xds/... ca config inject vm agent/... admin analyze meshtest", "the kernel and the vocabulary have no user types"},
	{"google.golang.org/protobuf", "api/... proxy rejection source/... state/... view/... xds/... ca config inject vm agent/... admin meshtest", "the kernel and the vocabulary have no messages"},
	{"google.golang.org/grpc", "xds/push xds/route xds/server xds/grpc source/... admission ca admin agent/... run", "only what speaks on the network needs it"},
	{"google.golang.org/grpc/mem", "xds/protocol xds/server agent/...", "buffers are made ready once; the protocol knows no more of gRPC"},
	{"istio.io/istio", "", "another control plane is not a library"},
}

// Budgets, in lines. A file or function that outgrows one holds two ideas: split it by idea.
const (
	fileLines     = 500
	functionLines = 60   // in tests as well
	packageLines  = 4000 // without tests
)

// exportedNames is how many types, functions, constants and variables a package may export. One with more says why in its
// package comment, in a sentence that begins with manyNames.
const (
	exportedNames = 60
	manyNames     = "It exports more than 60 names, because"
)

// bannedPackages are package names that say nothing about the content.
var bannedPackages = []string{"util", "utils", "common", "helper", "helpers", "types", "model", "models", "base", "misc", "shared", "lib", "bootstrap", "features"}

// bannedSuffixes end type names that say nothing about what the type is.
var bannedSuffixes = []string{"Impl", "Manager", "Helper", "Util", "Utils"}

// selfEvident are methods that mean the same everywhere: they need no doc comment.
var selfEvident = []string{"String", "Error", "Unwrap"}

// goroutines lists the packages that may start one with a bare go statement, and why. All others hand work to package run.
var goroutines = map[string]string{
	"run":            "owns the actors",
	"query":          "workers that live for one drain and are waited for",
	"xds/server":     "the receiving half of a stream",
	"xds/push":       "the loop",
	"identity":       "one question per token, a few at a time, and one fetch per issuer; callers wait for them, and each has a time limit",
	"source/file":    "the watcher's reader",
	"source/kube":    "one watch per kind, which comes and goes with the definition of the kind",
	"permission":     "one request per service account, a few at a time, which are waited for",
	"jwks":           "one fetch per key set, a few at a time, which are waited for",
	"source/remote":  "one source per remote cluster, which comes and goes with its Secret",
	"agent/secret":   "the sending half of a stream, and the request to the certificate authority",
	"agent/scrape":   "one request per target, which are waited for",
	"agent/lastgood": "one write of changes at a time, which is waited for no longer than a second",
	"agent/relay":    "the sending half of a stream, what the agent itself reports on it, and questions to Envoy while something is warming",
	"agent/wasm":     "one per fetch, a few at a time, which are waited for",
	"agent/dns":      "the receiving half of a stream; the DNS servers, and a query to each server, which are waited for",
	"agent/disk":     "one per read of a file, which is waited for as long as its file system answers",
}

// calls bans functions, except in the places named.
var calls = []struct{ path, name, only, remedy string }{
	{"time", "Sleep", "", "wait for the condition itself: a channel, a timer in a select, synctest in tests"},
	{"os", "Getenv", "config", "take the value as a parameter: settings are read once, at start"},
	{"os", "LookupEnv", "config", "take the value as a parameter: settings are read once, at start"},
	{"os", "Environ", "config", "take the value as a parameter: settings are read once, at start"},
	{"os", "ExpandEnv", "config", "take the value as a parameter: settings are read once, at start"},
	{"os", "Exit", "", "return an error: only a main function ends the process"},
	{"log", "Fatal", "", "return an error: only a main function ends the process"},
	{"log", "Fatalf", "", "return an error: only a main function ends the process"},
	{"log", "Printf", "", "take a *slog.Logger"},
	{"log", "Println", "", "take a *slog.Logger"},
	{"log/slog", "Default", "", "take a *slog.Logger"},
	{"fmt", "Println", "", "write to an io.Writer or a *slog.Logger that was handed in"},
	{"fmt", "Printf", "", "write to an io.Writer or a *slog.Logger that was handed in"},
}

// writes are the methods that open a transaction: each may be called only in the places named, in files that import
// the package that declares it. Everybody else hands batches to the loop.
var writes = []struct{ declaredIn, method, only string }{
	{"store", "Begin", "store query"},
	{"query", "Commit", "query xds/push analyze meshtest"},
}
