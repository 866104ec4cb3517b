package api

// supportedFields lists what the product acts on, kind by kind. What a document sets beyond this raises a Problem:
// whoever makes the product act on a field adds it here, and nowhere else.
//
// A line is a field of spec, without indexes and map keys; what is beneath it is supported with it. A word behind it
// narrows the values: "exact" (a host without wildcard), "ip" (an address, no block, name or socket), or the values
// themselves, separated by "|". Of MeshConfig a line is a field of the file itself, and what is as by default counts as not
// set; what only the node agent acts on is in it too. The name of a shape, which begins in lower case, stands for the fields
// of that.
const supportedFields = `
ServiceEntry
	hosts
	addresses
	ports
	location
	resolution                STATIC|NONE|DNS|DNS_ROUND_ROBIN|DYNAMIC_DNS
	endpoints.address
	endpoints.ports
	endpoints.labels
	endpoints.locality
	endpoints.weight
	endpoints.serviceAccount
	subjectAltNames
	workloadSelector
	exportTo

WorkloadEntry
	address
	ports
	labels
	locality
	weight
	serviceAccount

VirtualService
	hosts
	exportTo
	gateways                  mesh
	http.name
	http.match.name
	http.match.uri
	http.match.ignoreUriCase
	http.match.headers
	http.match.withoutHeaders
	http.match.queryParams
	http.match.method
	http.match.authority
	http.match.scheme
	http.match.gateways       mesh
	http.match.port
	http.match.sourceNamespace
	http.match.sourceLabels
	http.match.statPrefix
	http.route.destination
	http.route.weight
	http.route.headers
	http.redirect
	http.directResponse
	http.delegate
	http.rewrite
	http.timeout
	http.retries
	http.fault
	http.mirror
	http.mirrorPercent
	http.mirrorPercentage
	http.mirrors
	http.corsPolicy
	http.headers
	tcp.match.destinationSubnets
	tcp.match.port
	tcp.match.gateways        mesh
	tcp.match.sourceNamespace
	tcp.match.sourceLabels
	tcp.route.destination
	tcp.route.weight
	tls.match.sniHosts
	tls.match.destinationSubnets
	tls.match.port
	tls.match.gateways        mesh
	tls.match.sourceNamespace
	tls.match.sourceLabels
	tls.route.destination
	tls.route.weight

DestinationRule
	host
	exportTo
	workloadSelector
	trafficPolicy             policy
	subsets.name
	subsets.labels
	subsets.trafficPolicy     policy

policy
	portLevelSettings         portPolicy
	loadBalancer              balancer
	connectionPool
	outlierDetection
	tls                       clientTLS
	tunnel
	proxyProtocol
	retryBudget

portPolicy
	port
	loadBalancer              balancer
	connectionPool
	outlierDetection
	tls                       clientTLS

balancer
	simple
	consistentHash
	localityLbSetting
	zoneAwareLbSetting
	warmup
	warmupDurationSecs

clientTLS
	mode
	clientCertificate
	privateKey
	caCertificates
	subjectAltNames
	sni
	insecureSkipVerify
	caCrl

Sidecar
	workloadSelector
	egress.port
	egress.bind               ip
	egress.captureMode
	egress.hosts
	ingress.port
	ingress.bind
	ingress.captureMode
	ingress.defaultEndpoint
	ingress.connectionPool
	inboundConnectionPool
	outboundTrafficPolicy

MeshConfig
	proxyHttpPort
	connectTimeout
	protocolDetectionTimeout
	tcpKeepalive
	accessLogFile
	accessLogFormat
	accessLogEncoding
	disableEnvoyListenerLog
	outboundTrafficPolicy.mode
	outboundTrafficPolicy.tls clientTLS
	inboundTrafficPolicy
	enableAutoMtls
	trustDomain
	trustDomainAliases
	defaultServiceExportTo
	defaultVirtualServiceExportTo
	defaultDestinationRuleExportTo
	rootNamespace
	localityLbSetting
	zoneAwareLbSetting
	dnsRefreshRate
	h2UpgradePolicy
	pathNormalization
	defaultHttpRetryPolicy
	defaultTrafficPolicy
	enableTracing             false
	defaultConfig.configPath
	defaultConfig.binaryPath
	defaultConfig.serviceCluster
	defaultConfig.tracingServiceName
	defaultConfig.drainDuration
	defaultConfig.terminationDrainDuration
	defaultConfig.discoveryAddress
	defaultConfig.controlPlaneAuthPolicy
	defaultConfig.proxyAdminPort
	defaultConfig.statusPort
	defaultConfig.concurrency
	defaultConfig.interceptionMode
	defaultConfig.proxyMetadata
	defaultConfig.runtimeValues
	defaultConfig.meshId
	defaultConfig.fileFlushInterval
	defaultConfig.proxyHeaders.server
	defaultConfig.proxyHeaders.requestId
	defaultConfig.proxyHeaders.attemptCount
	defaultConfig.proxyHeaders.envoyDebugHeaders
	defaultConfig.proxyHeaders.preserveHttp1HeaderCase
	defaultConfig.proxyHeaders.xForwardedHost
`
