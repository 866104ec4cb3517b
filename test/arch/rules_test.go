package arch

// module is the import path all packages of the product begin with.
const module = "github.com/pilotmesh/pilot/"

// flow is the architecture in data order: each package, and the packages of internal/ that it may import. "x/..." means
// x and all below it; the first row that matches a package counts. Imports of tests are not restricted.
var flow = []struct{ pkg, imports string }{
	// Incremental computation: nothing in it knows a mesh.
	{"engine/omap", ""},
	{"engine/slab", ""},
	{"engine/intern", ""},
	{"engine/store", "engine/omap engine/slab"},
	{"engine/query", "engine/omap engine/slab engine/store"},
	// How a program of ours lives on its host.
	{"run", ""},
	{"run/filewatch", "run/links"},
	{"run/...", ""},
	// Identities of callers, and certificates.
	{"security/identity", "run/fetch run/statefile"},
	{"security/credential", ""},
	{"security/compliance", ""},
	{"security/admission", "security/identity"},
	{"security/ca", "run/filewatch run/statefile security/..."},
	// The vocabulary, and objects as values.
	{"mesh", "engine/intern engine/omap"},
	{"api/code", ""},
	{"api/spelling", ""},
	{"api/document", "api/code api/spelling"},
	{"api/ingress", ""},
	{"api/kube", "engine/intern mesh security/credential"},
	{"api/registry", "api api/kube mesh"},
	{"api/rejection", "api"},
	{"api/connection", "engine/intern"},
	{"api/rules/syntax", "api/document"},
	{"api/rules/envoy", ""},
	{"api/rules/presence", "api/document"},
	{"api/rules/shape", "api/document api/rules/syntax"},
	{"api/rules/kube", "api/document api/ingress api/rules/syntax"},
	{"api/rules/check", "api/document api/rules/syntax"},
	{"api/rules/traffic", "api/destination api/document api/rules/check api/rules/syntax"},
	{"api/rules/settings", "api/connection api/destination api/document api/rules/check api/rules/shape api/rules/syntax api/rules/traffic mesh"},
	{"api/rules", "api/destination api/document api/rules/check api/rules/envoy api/rules/shape api/rules/syntax api/rules/traffic mesh"},
	{"api/fields", "api/document mesh"},
	{"api", "api/code api/document api/fields api/ingress api/rules/... engine/omap mesh"},
	{"api/destination", ""},
	{"api/gateway", "api api/ingress mesh security/compliance"},
	{"proxy", "api api/connection engine/intern engine/omap mesh security/identity"},
	{"config/logging", "api/spelling"},
	{"config/variables", "api/spelling"},
	{"config", "api config/... mesh run/statefile security/compliance security/identity"},
	// From the outside world to rows.
	{"source/remote", "api api/kube source source/kube"},
	{"source/kept", "api engine/omap run/statefile"},
	{"source/folder", "api api/kube run/filewatch security/credential source"},
	{"source/object", "api api/kube engine/intern mesh"},
	{"source/registries", "api api/code api/registry api/rules/syntax mesh run/filewatch run/retry run/statefile source source/kept"},
	{"source/dubbo", "mesh source/registries"},
	{"source/consul", "mesh source/registries"},
	{"source/zookeeper", "mesh source/dubbo source/registries"},
	{"source/nacos", "source/dubbo source/registries"},
	{"source/eureka", "source/registries"},
	{"source/mcp", "api source/registries"},
	{"source/...", "api api/kube engine/intern engine/omap mesh run run/kubeclient run/links run/retry security/credential source source/kept source/object"},
	{"state/claim", "api api/kube api/registry engine/omap engine/store mesh"},
	{"state/connected", "api api/rejection engine/omap engine/store mesh proxy"},
	{"state/settings", "api api/connection api/gateway engine/intern engine/store mesh security/compliance"},
	{"state/provider", ""},
	{"state/selected", "api engine/intern mesh"},
	{"state/policies", "api api/kube engine/omap engine/store mesh source state/provider state/selected"},
	{"state/gatewayrows", "api api/gateway api/ingress engine/omap engine/store mesh proxy state/claim state/selected"},
	{"state", "api api/destination api/gateway api/ingress api/kube api/registry engine/intern engine/omap engine/store mesh proxy security/compliance source state/..."},
	// From rows to the objects that a class may see and must obey.
	{"view/service/exposure", "engine/omap engine/query mesh"},
	{"view/...", "api api/code api/destination api/fields api/gateway api/ingress api/kube api/registry api/spelling engine/intern engine/omap engine/query engine/store mesh proxy run/safedial state/... view/..."},
	// From there to Envoy's types. Translators know neither each other, nor the store, nor the sources.
	{"xds/nds", ""},
	{"xds/resource", "engine/omap engine/store xds/nds"},
	{"xds/envoy", "api/connection engine/omap mesh security/compliance xds/resource"},
	{"xds/authz", "api engine/omap engine/query mesh proxy state/... view/... xds/envoy"},
	{"xds/telemetry", "api engine/query mesh proxy state/... view/... xds/envoy"},
	{"xds/extension", "api engine/query proxy state/... view/... xds/envoy xds/resource"},
	{"xds/layer", "engine/omap engine/query mesh view/..."},
	{"xds/secret", translator + " api/destination api/kube security/credential"},
	{"xds/merge", ""},
	{"xds/patch", "api api/rules/envoy engine/omap xds/merge"},
	{"xds/class/patching", "api api/rules/envoy engine/intern engine/omap engine/query proxy state/... view/... xds/cluster xds/envoy xds/layer xds/patch xds/resource xds/route"},
	{"xds/class", "api api/code api/destination api/rejection engine/intern engine/omap engine/query mesh proxy state/... view/... " + translators + " xds/authz xds/class/patching xds/envoy xds/extension xds/layer xds/mcp xds/patch xds/resource xds/telemetry"},
	{"xds/listener", translator + " api/destination"},
	{"xds/mcp", translator + " api/registry"},
	{"xds/...", translator},
	// Streams see resources only. The loop joins everything.
	{"ads/arrivals", ""},
	{"ads/gate", ""},
	{"ads/request", "engine/omap xds/resource"},
	{"ads/protocol/hold", "ads/protocol/content engine/omap xds/resource"},
	{"ads/protocol/memo", ""},
	{"ads/protocol/nameset", "engine/omap"},
	{"ads/protocol/subscribe", "ads/protocol/memo ads/request engine/omap xds/resource"},
	{"ads/protocol/content", "engine/omap xds/resource"},
	{"ads/protocol/reject", "engine/omap xds/resource"},
	{"ads/protocol/response", "ads/protocol/content ads/request xds/resource"},
	{"ads/protocol/transition", "ads/protocol/content ads/protocol/nameset ads/protocol/reject ads/protocol/response ads/protocol/subscribe ads/request engine/omap xds/resource"},
	{"ads/protocol/overlay", "ads/protocol/content ads/protocol/reject ads/protocol/subscribe ads/protocol/transition engine/omap xds/resource"},
	{"ads/protocol/claim", "ads/protocol/nameset ads/protocol/subscribe ads/protocol/transition ads/request engine/omap xds/resource"},
	{"ads/protocol", "ads/protocol/claim ads/protocol/content ads/protocol/hold ads/protocol/memo ads/protocol/nameset ads/protocol/overlay ads/protocol/reject ads/protocol/response ads/protocol/subscribe ads/protocol/transition ads/request engine/omap engine/store xds/resource"},
	{"ads/configuration", "ads/request engine/omap xds/resource"},
	{"ads/server", "ads/configuration ads/gate ads/protocol ads/protocol/reject ads/protocol/response ads/request engine/omap engine/store security/identity xds/resource"},
	{"loop", "ads/... api api/rejection engine/omap engine/query engine/store mesh proxy source state/... xds/..."},
	// Questions, answered by the same queries.
	{"explain/access", ""},
	{"explain/page", ""},
	{"explain/why/reply", "api api/spelling engine/omap engine/store explain/access explain/page xds/envoy"},
	{"explain/why/described", "explain/access mesh security/identity xds/envoy"},
	{"explain/why", "api api/gateway api/ingress api/kube api/spelling engine/intern engine/omap engine/query engine/store explain/access explain/page explain/why/described explain/why/reply mesh proxy security/identity state/... view/... xds/authz xds/class xds/envoy xds/resource xds/route"},
	{"explain/ingresses", "api api/gateway api/ingress engine/query engine/store explain/page explain/why/... mesh state/... view/gateway"},
	{"explain/entrance", "api api/gateway api/ingress api/kube engine/omap engine/query engine/store explain/page explain/why/... mesh proxy state/... view/..."},
	{"explain/patched", "api engine/query explain/why mesh proxy state/... view/... xds/class/patching"},
	{"explain/flow", ""},
	{"explain/configdump", ""},
	{"explain/sarif", "api api/code"},
	{"explain/live", "ads/protocol ads/server api api/kube engine/store loop proxy xds/resource"},
	{"explain/analyze", "api api/code api/kube api/spelling engine/omap engine/query engine/store explain/entrance explain/ingresses explain/patched explain/why/... inject mesh security/credential source source/object state/... xds/class"},
	// What queries want, done outside.
	{"controller/fair", ""},
	{"controller/schedule", "controller/fair run/retry"},
	{"controller/addresses", "api controller/schedule engine/omap loop view/allocation"},
	{"controller/untaint", "controller/schedule engine/omap loop view/capture"},
	{"controller/ingress", "api controller/schedule engine/intern engine/omap engine/query loop state/... xds/class"},
	{"controller/keys", "api controller/fair controller/schedule engine/omap engine/query loop run/fetch run/retry run/safedial source state/... xds/class"},
	{"controller/bundles", "api controller/fair controller/schedule engine/omap engine/query loop run/retry run/statefile source state/... xds/class"},
	{"controller/names", "controller/fair controller/schedule engine/intern engine/query loop run/safedial source state/... xds/class"},
	{"controller/permission", "api api/kube controller/fair controller/schedule engine/omap engine/query loop run/retry source state/... xds/class xds/resource xds/secret"},
	{"controller/entries", "api api/kube controller/schedule engine/omap loop source state/... view/registration"},
	{"controller/status", "ads/server api controller/schedule engine/omap explain/live loop state/... xds/class"},
	{"controller/about", "api api/kube loop security/identity state"},
	{"controller/impersonation", "api api/kube loop security/identity state/..."},
	{"controller/election", ""},
	{"controller/cluster", "api api/kube controller/election controller/entries controller/schedule controller/status run/kubeclient security/identity source/kept state/... view/registration"},
	// Pages and metrics; the agent.
	{"inject/owner", ""},
	{"inject/probe", ""},
	{"inject/scrape", ""},
	{"inject/tree", ""},
	{"inject/webhook", "api inject inject/owner inject/tree"},
	{"inject", "api inject/owner inject/probe inject/scrape inject/tree"},
	// Objects of a control plane on a cluster.
	{"ctl/install/check", "api inject ctl/install run/kubeclient"},
	{"ctl/install/pods", "run/kubeclient"},
	{"ctl/install/tags", "ctl/install"},
	{"ctl/install/migrate", "api api/code explain/analyze run/kubeclient"},
	{"ctl/install", "api api/spelling inject run/template"},
	{"admin", "ads/protocol ads/protocol/response ads/server api api/code api/kube api/registry api/rejection config/logging engine/omap engine/query engine/store explain/entrance explain/ingresses explain/live explain/patched explain/why/... inject/webhook loop mesh proxy run security/ca security/identity source state/... xds/class xds/resource"},
	{"admin/bugreport", "admin explain/configdump"},
	{"admin/dashboard", ""},
	{"admin/summary", "admin explain/entrance explain/why/..."},
	// Commands of pilotctl, and the part that they share.
	{"ctl/console", "admin api ctl/install/pods run"},
	{"ctl/installation", "ctl/console ctl/install run"},
	{"ctl/machines", "agent/vm api controller/cluster ctl/console run run/statefile security/identity source/kube"},
	{"ctl/registered", "admin api/registry ctl/console run source/consul source/eureka source/nacos source/registries source/zookeeper"},
	{"ctl/traffic", "admin ctl/console explain/flow run"},
	{"ctl/proxyconfig", "admin ctl/console explain/configdump ctl/install/pods run"},
	{"ctl/tag", "ctl/console ctl/install ctl/install/tags run"},
	{"ctl/remotes", "controller/cluster ctl/console run source source/kube"},
	{"agent/vm", "api"},
	{"agent/capture", "agent/capture/..."},
	{"agent/capture/settings", ""},
	{"agent/capture/rules", "agent/capture/settings"},
	{"agent/capture/...", "agent/capture/rules agent/capture/settings"},
	{"agent/...", "agent/... api/document config config/logging config/variables engine/omap mesh run run/... security/ca security/compliance security/credential xds/envoy xds/merge xds/nds"},
	// The capture of traffic from outside the pods.
	{"agent/cni/selection", "agent/capture/settings"},
	{"agent/cni/wire", ""},
	{"agent/cni/plugin", "agent/cni/wire"},
	{"agent/cni/node", "agent/capture agent/cni/selection agent/cni/wire run/kubeclient"},
	{"agent/cni/chain", "run/filewatch"},
	{"agent/cni/repair", "agent/cni/node agent/cni/selection run/kubeclient"},
	// Only tests import it: no other row names it.
	{"meshtest", "ads/... api api/kube engine/omap engine/query engine/store explain/... loop mesh proxy source state/... xds/..."},
}

// The packages that every translator may import, and the translators.
const (
	translator  = "api api/connection api/gateway engine/intern engine/omap engine/query mesh proxy security/compliance state/... view/... xds/authz xds/envoy xds/extension xds/layer xds/nds xds/resource xds/telemetry"
	translators = "xds/cluster xds/endpoint xds/listener xds/route xds/secret xds/nametable"
)

// outside says which packages may import from which other modules: a prefix of import paths, and the only places for it.
// The longest prefix counts. Imports that match no row are free.
var outside = []struct{ prefix, only, why string }{
	{"github.com/envoyproxy/go-control-plane", "api/rules/envoy source/mcp xds/... ads/... loop explain/... agent/... meshtest", "everything before xds must not know Envoy, except for the check of what users patch in its messages"},
	{"github.com/cncf/xds", "api/rules/envoy xds/... ads/... loop explain/... agent/... meshtest", "everything before xds must not know Envoy"},
	{"k8s.io/", "source/... run/kubeclient controller/cluster controller/election inject/... ctl/... agent/cni/...", "Kubernetes is one source among others"},
	{"sigs.k8s.io/controller-runtime", "source/... inject", "Kubernetes is one source among others"},
	{"sigs.k8s.io/gateway-api", "source/... inject", "Kubernetes is one source among others"},
	{"istio.io/api", "api/... source/... state/... view/... xds/... ads/... loop security/ca config inject agent/... admin explain/... meshtest", "the kernel and the vocabulary have no user types"},
	{"google.golang.org/protobuf", "api/... proxy api/rejection source/... state/... view/... xds/... ads/... loop explain/... security/ca config inject agent/... admin meshtest", "the kernel and the vocabulary have no messages"},
	{"google.golang.org/grpc", "loop xds/route ads/server source/... security/admission security/ca admin agent/... run", "only what speaks on the network needs it"},
	{"google.golang.org/grpc/mem", "ads/protocol/response ads/server agent/...", "buffers are made ready once; the protocol knows no more of gRPC"},
	{"helm.sh/helm/v4/pkg/engine", "", "it has every kind of Kubernetes and calls methods by name, which makes a program 40 MB larger; only tests compare with it"},
	{"helm.sh/helm", "ctl/install", "charts are rendered in one place"},
	{"istio.io/istio", "", "another control plane is not a library"},
}

// Budgets, in lines. A file or function that outgrows one holds two ideas: split it by idea.
const (
	fileLines     = 500
	functionLines = 60   // in tests as well
	packageLines  = 3000 // without tests
)

// How many folders internal may have, and how many of their pairs may have an import from the first to the second. A package that needs one more import
// often takes a value from its caller instead.
const (
	topFolders = 20
	topImports = 110
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
	"run":                 "owns the actors",
	"engine/query":        "workers that live for one drain and are waited for",
	"ads/server":          "the receiving half of a stream",
	"loop":                "the loop",
	"ctl/install/pods":    "a forwarded port, whose end is waited for",
	"security/identity":   "one question per token, a few at a time, and one fetch per issuer; callers wait for them, and each has a time limit",
	"source/file":         "the watcher's reader",
	"source/kube":         "one watch per kind, which comes and goes with the definition of the kind",
	"controller/schedule": "one fetch per wanted key, a few at a time, which are waited for",
	"controller/election": "the work of a leader, which is waited for",
	"source/registries":   "one reader per registry, which comes and goes with its entry in the file",
	"source/mcp":          "the receiving half of a stream, which is waited for",
	"source/remote":       "one source per remote cluster, which comes and goes with its Secret",
	"agent/upstream":      "the receiving half of a stream, which is waited for",
	"agent/secret":        "the sending half of a stream, and the request to the certificate authority",
	"agent/scrape":        "one request per target, which are waited for",
	"agent/lastgood":      "one write of changes at a time, which is waited for no longer than a second",
	"agent/relay":         "the sending half of a stream, what the agent itself reports on it, and questions to Envoy while something is warming",
	"agent/wasm":          "one per fetch, a few at a time, which are waited for",
	"agent/dns":           "the DNS servers, and a query to each server, which are waited for",
	"agent/disk":          "one per read of a file, which is waited for as long as its file system answers",
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
	{"text/template", "New", "", "use run/template: text/template calls methods by name, so the linker keeps every method of the program (the agent was 20 % larger)"},
	{"fmt", "Printf", "", "write to an io.Writer or a *slog.Logger that was handed in"},
}

// writes are the methods that open a transaction: each may be called only in the places named, in files that import
// the package that declares it. Everybody else hands batches to the loop.
var writes = []struct{ declaredIn, method, only string }{
	{"engine/store", "Begin", "engine/store engine/query"},
	{"engine/query", "Commit", "engine/query loop explain/analyze meshtest"},
}
