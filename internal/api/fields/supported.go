package fields

// supportedFields decides for every field of the API whether the product acts on it, kind by kind. A change that makes
// the product act on a field changes its line here, and nowhere else. TestEveryFieldIsDecided compares the table with the
// API's descriptors: a field that a new version of the API adds has no line, and fails the test until someone decides.
//
// Each line is a field of the spec, without indexes and map keys. Only fields without fields beneath them have a line. Words after
// the field restrict the decision. A document that sets more than the table supports gets a Problem.
//
//	no             The product does not act on the field, nor on any field beneath it.
//	client         The field is about connections of a client to a service, not of a sidecar to its application.
//	http           The field is about HTTP, so it has no effect on ports of another protocol. A sniffed port may be HTTP.
//	http2          The field is about HTTP/2, so it has no effect on ports of another protocol.
//	tcp            The field is about TCP connections, so it has no effect on ports that are HTTP.
//	gateway        Only gateways act on the field, so it has no effect in an object for sidecars.
//	selected       Sidecars act on the field in an object with a workloadSelector only. Otherwise only gateways act on it.
//	ip             The value must be an IP address, not a block of addresses, a name or a socket.
//	A|B            The value must be one of these.
//	SHAPE          The section SHAPE lists the fields beneath it. Names of such sections begin in lower case.
//	SHAPE server   The same, and the fields are about connections of a sidecar to its application.
//
// The text after a colon advises users what to do instead.
//
// For MeshConfig, a line is a field of the file itself, and a field with its default value counts as not set. A field on
// which only the agent acts counts as supported.
const supportedFields = `
ServiceEntry
	hosts
	addresses
	ports.number
	ports.protocol
	ports.name
	ports.targetPort
	location
	resolution                STATIC|NONE|DNS|DNS_ROUND_ROBIN|DYNAMIC_DNS
	endpoints                 workload
	workloadSelector.labels
	exportTo
	subjectAltNames

WorkloadEntry                 workload

WorkloadGroup
	metadata.labels
	metadata.annotations
	template                  workload
	probe.initialDelaySeconds
	probe.timeoutSeconds
	probe.periodSeconds
	probe.successThreshold
	probe.failureThreshold
	probe.httpGet.path
	probe.httpGet.port
	probe.httpGet.host
	probe.httpGet.scheme
	probe.httpGet.httpHeaders.name
	probe.httpGet.httpHeaders.value
	probe.tcpSocket.host
	probe.tcpSocket.port
	probe.exec.command
	probe.grpc.port
	probe.grpc.service

workload
	address
	ports
	labels
	network
	locality
	weight
	serviceAccount

VirtualService
	hosts
	exportTo
	gateways
	http.name
	http.match.name
	http.match.uri            text
	http.match.ignoreUriCase
	http.match.headers         text
	http.match.withoutHeaders  text
	http.match.queryParams     text
	http.match.method         text
	http.match.authority      text
	http.match.scheme         text
	http.match.gateways
	http.match.port
	http.match.sourceNamespace
	http.match.sourceLabels
	http.match.statPrefix
	http.route.destination    destination
	http.route.weight
	http.route.headers        headers
	http.redirect.uri
	http.redirect.authority
	http.redirect.port
	http.redirect.derivePort
	http.redirect.scheme
	http.redirect.redirectCode
	http.redirect.prefixRewrite
	http.directResponse.status
	http.directResponse.body.string
	http.directResponse.body.bytes
	http.delegate.name
	http.delegate.namespace
	http.rewrite.uri
	http.rewrite.authority
	http.rewrite.uriRegexRewrite.match
	http.rewrite.uriRegexRewrite.rewrite
	http.timeout
	http.retries              retries
	http.fault.delay.percent
	http.fault.delay.fixedDelay
	http.fault.delay.exponentialDelay  no: use fixedDelay
	http.fault.delay.percentage.value
	http.fault.abort.httpStatus
	http.fault.abort.grpcStatus
	http.fault.abort.http2Error        no: use httpStatus or grpcStatus
	http.fault.abort.percentage.value
	http.mirror               destination
	http.mirrorPercent
	http.mirrorPercentage.value
	http.mirrors.destination  destination
	http.mirrors.percentage.value
	http.corsPolicy.allowOrigin
	http.corsPolicy.allowOrigins       text
	http.corsPolicy.allowMethods
	http.corsPolicy.allowHeaders
	http.corsPolicy.exposeHeaders
	http.corsPolicy.maxAge
	http.corsPolicy.allowCredentials
	http.corsPolicy.unmatchedPreflights
	http.headers              headers
	tcp.match.destinationSubnets
	tcp.match.port
	tcp.match.sourceSubnet    no: match sourceLabels or sourceNamespace
	tcp.match.gateways
	tcp.match.sourceNamespace
	tcp.match.sourceLabels
	tcp.route.destination     destination
	tcp.route.weight
	tls.match.sniHosts
	tls.match.destinationSubnets
	tls.match.port
	tls.match.gateways
	tls.match.sourceNamespace
	tls.match.sourceLabels
	tls.route.destination     destination
	tls.route.weight

text
	exact
	prefix
	regex

destination
	host
	subset
	port.number

headers
	request.set
	request.add
	request.remove
	response.set
	response.add
	response.remove

retries
	attempts
	perTryTimeout
	retryOn
	retryRemoteLocalities
	retryIgnorePreviousHosts
	backoff

DestinationRule
	host
	exportTo
	workloadSelector.matchLabels
	trafficPolicy             policy
	subsets.name
	subsets.labels
	subsets.trafficPolicy     policy

policy
	portLevelSettings         portPolicy
	loadBalancer              balancer
	connectionPool            pool
	outlierDetection          outliers
	tls                       clientTLS
	tunnel.protocol           tcp
	tunnel.targetHost         tcp
	tunnel.targetPort         tcp
	proxyProtocol.version
	retryBudget.percent              http
	retryBudget.minRetryConcurrency  http
	retryBudget.budgetInterval       http

portPolicy
	port.number
	loadBalancer              balancer
	connectionPool            pool
	outlierDetection          outliers
	tls                       clientTLS

balancer
	simple
	consistentHash.httpHeaderName           http: use useSourceIp
	consistentHash.httpCookie.name          http: use useSourceIp
	consistentHash.httpCookie.path          http: use useSourceIp
	consistentHash.httpCookie.ttl           http: use useSourceIp
	consistentHash.httpCookie.attributes.name   http: use useSourceIp
	consistentHash.httpCookie.attributes.value  http: use useSourceIp
	consistentHash.httpQueryParameterName   http: use useSourceIp
	consistentHash.useSourceIp
	backendUtilization.weightStabilizationPeriod
	backendUtilization.weightExpirationPeriod
	backendUtilization.weightUpdatePeriod
	backendUtilization.errorUtilizationPenaltyPercent
	backendUtilization.metricNamesForComputingUtilization
	consistentHash.ringHash.minimumRingSize
	consistentHash.maglev.tableSize
	consistentHash.minimumRingSize
	localityLbSetting         localities
	zoneAwareLbSetting        zones
	warmup.duration
	warmup.minimumPercent
	warmup.aggression
	warmupDurationSecs

localities
	distribute.from
	distribute.to
	failover.from
	failover.to
	failoverPriority
	enabled

zones
	enabled
	failover.from
	failover.to
	failoverPriority
	minClusterSize

pool
	tcp.maxConnections
	tcp.connectTimeout
	tcp.tcpKeepalive          keepalive
	tcp.maxConnectionDuration
	tcp.idleTimeout
	http.http1MaxPendingRequests   http
	http.http2MaxRequests          http
	http.maxRequestsPerConnection  http
	http.maxRetries                http
	http.idleTimeout               http: use tcp.idleTimeout
	http.h2UpgradePolicy           client http: declare the port HTTP2, or set useClientProtocol
	http.useClientProtocol         http
	http.maxConcurrentStreams      http2
	http.http2KeepAlive.interval   http2: use tcp.tcpKeepalive
	http.http2KeepAlive.timeout    http2: use tcp.tcpKeepalive

keepalive
	probes
	time
	interval

outliers
	consecutiveErrors
	consecutive5xxErrors
	consecutiveGatewayErrors
	splitExternalLocalOriginErrors
	consecutiveLocalOriginFailures
	interval
	baseEjectionTime
	maxEjectionPercent
	minHealthPercent
	outlierDetectionHttpErrorCodes  http

clientTLS
	mode
	clientCertificate
	privateKey
	caCertificates
	credentialName            selected: add a workloadSelector, or name files in clientCertificate, privateKey and caCertificates
	subjectAltNames
	sni
	insecureSkipVerify
	caCrl

Sidecar
	workloadSelector.labels
	egress.port               sidecarPort
	egress.bind
	egress.captureMode
	egress.hosts
	ingress.port              sidecarPort
	ingress.bind
	ingress.captureMode
	ingress.defaultEndpoint
	ingress.tls               serverTLS
	ingress.connectionPool    pool server
	inboundConnectionPool     pool server
	outboundTrafficPolicy.mode
	outboundTrafficPolicy.egressProxy  destination

Ingress
	ingressClassName
	defaultBackend            backend
	tls.hosts
	tls.secretName
	rules.host
	rules.http.paths.path
	rules.http.paths.pathType
	rules.http.paths.backend  backend

backend
	service.name
	service.port.name
	service.port.number
	resource.apiGroup
	resource.kind
	resource.name

IngressClass
	controller
	parameters.apiGroup       no
	parameters.kind           no
	parameters.name           no
	parameters.scope          no
	parameters.namespace      no

Gateway
	selector
	servers.name
	servers.port.number
	servers.port.protocol
	servers.port.name
	servers.port.targetPort
	servers.bind
	servers.hosts
	servers.tls               gatewayTLS
	servers.defaultEndpoint   no: VirtualServices say where requests go

gatewayTLS
	httpsRedirect
	mode
	serverCertificate
	privateKey
	caCertificates
	caCrl
	credentialName
	credentialNames
	caCertCredentialName
	tlsCertificates.serverCertificate
	tlsCertificates.privateKey
	tlsCertificates.caCertificates
	subjectAltNames
	verifyCertificateSpki
	verifyCertificateHash
	minProtocolVersion
	maxProtocolVersion
	cipherSuites
	insecureSkipVerify
	ecdhCurves

serverTLS
	httpsRedirect             gateway
	mode
	serverCertificate
	privateKey
	caCertificates
	caCrl
	credentialName            gateway
	credentialNames           gateway
	caCertCredentialName      no: name a file in caCertificates
	tlsCertificates.serverCertificate
	tlsCertificates.privateKey
	tlsCertificates.caCertificates
	subjectAltNames           gateway
	verifyCertificateSpki
	verifyCertificateHash
	minProtocolVersion
	maxProtocolVersion
	cipherSuites
	insecureSkipVerify        no: clients are verified in mode MUTUAL only
	ecdhCurves

sidecarPort
	number
	protocol
	name
	targetPort                no: of an ingress listener, name the application's port in defaultEndpoint

RequestAuthentication
	selector.matchLabels
	targetRef                 policyTarget
	targetRefs                policyTarget
	jwtRules.issuer
	jwtRules.audiences
	jwtRules.jwksUri
	jwtRules.jwks
	jwtRules.fromHeaders.name
	jwtRules.fromHeaders.prefix
	jwtRules.fromParams
	jwtRules.fromCookies
	jwtRules.outputPayloadToHeader
	jwtRules.forwardOriginalToken
	jwtRules.outputClaimToHeaders.header
	jwtRules.outputClaimToHeaders.claim
	jwtRules.timeout
	jwtRules.spaceDelimitedClaims
	jwtRules.presence

AuthorizationPolicy
	selector.matchLabels
	targetRef                 policyTarget
	targetRefs                policyTarget
	action
	provider.name
	rules.from.source.principals
	rules.from.source.notPrincipals
	rules.from.source.requestPrincipals
	rules.from.source.notRequestPrincipals
	rules.from.source.namespaces
	rules.from.source.notNamespaces
	rules.from.source.serviceAccounts
	rules.from.source.notServiceAccounts
	rules.from.source.trustDomains
	rules.from.source.notTrustDomains
	rules.from.source.ipBlocks
	rules.from.source.notIpBlocks
	rules.from.source.remoteIpBlocks
	rules.from.source.notRemoteIpBlocks
	rules.to.operation.hosts
	rules.to.operation.notHosts
	rules.to.operation.ports
	rules.to.operation.notPorts
	rules.to.operation.methods
	rules.to.operation.notMethods
	rules.to.operation.paths
	rules.to.operation.notPaths
	rules.when.key
	rules.when.values
	rules.when.notValues

policyTarget
	group
	kind                      targetKind: a policy for another target applies to waypoints only, and there are none here; use a selector
	name
	namespace

PeerAuthentication
	selector.matchLabels
	mtls.mode
	portLevelMtls.mode
`
