package fields

// supportedFilterFields continues supportedFields with the kinds that patch messages of Envoy or configure its logs, traces and metrics.
const supportedFilterFields = `
EnvoyFilter
	workloadSelector.labels
	targetRefs                policyTarget
	priority
	configPatches.applyTo     LISTENER|LISTENER_FILTER|FILTER_CHAIN|NETWORK_FILTER|HTTP_FILTER|ROUTE_CONFIGURATION|VIRTUAL_HOST|HTTP_ROUTE|CLUSTER|EXTENSION_CONFIG|BOOTSTRAP: there are no waypoints here
	configPatches.match.context  ANY|SIDECAR_INBOUND|SIDECAR_OUTBOUND|GATEWAY: there are no waypoints here
	configPatches.match.proxy.proxyVersion
	configPatches.match.proxy.metadata
	configPatches.match.listener.name
	configPatches.match.listener.portNumber
	configPatches.match.listener.portName  no: name the port by its number
	configPatches.match.listener.listenerFilter
	configPatches.match.listener.filterChain.name
	configPatches.match.listener.filterChain.sni
	configPatches.match.listener.filterChain.transportProtocol
	configPatches.match.listener.filterChain.transportSocket
	configPatches.match.listener.filterChain.applicationProtocols
	configPatches.match.listener.filterChain.destinationPort
	configPatches.match.listener.filterChain.filter.name
	configPatches.match.listener.filterChain.filter.subFilter.name
	configPatches.match.routeConfiguration.name
	configPatches.match.routeConfiguration.portNumber
	configPatches.match.routeConfiguration.portName
	configPatches.match.routeConfiguration.gateway
	configPatches.match.routeConfiguration.vhost.name
	configPatches.match.routeConfiguration.vhost.domainName
	configPatches.match.routeConfiguration.vhost.route.name
	configPatches.match.routeConfiguration.vhost.route.action
	configPatches.match.cluster.name
	configPatches.match.cluster.service
	configPatches.match.cluster.subset
	configPatches.match.cluster.portNumber
	configPatches.match.waypoint  no: there are no waypoints here
	configPatches.patch.operation
	configPatches.patch.value
	configPatches.patch.filterClass

Telemetry
	selector.matchLabels
	targetRef                 policyTarget
	targetRefs                policyTarget
	accessLogging.match.mode
	accessLogging.providers.name
	accessLogging.disabled
	accessLogging.filter.expression
	tracing.match.mode
	tracing.providers.name
	tracing.randomSamplingPercentage
	tracing.disableSpanReporting
	tracing.customTags.literal.value
	tracing.customTags.environment.name
	tracing.customTags.environment.defaultValue
	tracing.customTags.header.name
	tracing.customTags.header.defaultValue
	tracing.customTags.formatter.value
	tracing.useRequestIdForTraceSampling
	tracing.enableIstioTags
	tracing.disableContextPropagation
	metrics.providers.name
	metrics.overrides.match.metric
	metrics.overrides.match.customMetric  no: Envoy reports the metrics of the mesh only
	metrics.overrides.match.mode
	metrics.overrides.disabled
	metrics.overrides.tagOverrides.operation
	metrics.overrides.tagOverrides.value
	metrics.reportingInterval           no: bytes of a connection are counted when it ends

WasmPlugin
	selector.matchLabels
	targetRef                 policyTarget
	targetRefs                policyTarget
	url
	sha256
	imagePullPolicy
	imagePullSecret
	verificationKey           no: set sha256, or the digest of the image in the address
	pluginConfig
	pluginName
	phase
	priority
	failStrategy
	vmConfig.env.name
	vmConfig.env.valueFrom
	vmConfig.env.value
	match.mode
	match.ports.number
	type

TrafficExtension
	selector.matchLabels
	targetRefs                policyTarget
	phase
	priority
	match.mode
	match.ports.number
	wasm.url
	wasm.sha256
	wasm.imagePullPolicy
	wasm.imagePullSecret
	wasm.verificationKey      no: set sha256, or the digest of the image in the address
	wasm.pluginConfig
	wasm.pluginName
	wasm.failStrategy
	wasm.vmConfig.env.name
	wasm.vmConfig.env.valueFrom
	wasm.vmConfig.env.value
	wasm.type
	lua.inlineCode

ProxyConfig
	selector.matchLabels
	concurrency
	environmentVariables
	image.imageType
`
