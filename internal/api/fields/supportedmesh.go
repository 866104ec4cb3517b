package fields

// supportedMeshFields is the part of supportedFields about MeshConfig. It may use its shapes.
const supportedMeshFields = `
MeshConfig
	proxyListenPort
	proxyInboundListenPort
	proxyHttpPort
	connectTimeout
	hboneIdleTimeout          no: there are no tunnels of the ambient mode here
	protocolDetectionTimeout
	tcpKeepalive              keepalive
	ingressClass
	ingressService
	ingressControllerMode
	ingressSelector
	enableTracing
	accessLogFile
	accessLogFormat
	accessLogEncoding
	enableEnvoyAccessLogService
	disableEnvoyListenerLog
	defaultConfig             proxyConfig
	outboundTrafficPolicy.mode
	outboundTrafficPolicy.tls clientTLS
	inboundTrafficPolicy.mode
	configSources.address
	configSources.tlsSettings clientTLS
	configSources.subscribedResources  no: all kinds are read
	enableAutoMtls
	trustDomain
	trustDomainAliases
	caCertificates.pem
	caCertificates.certSigners
	caCertificates.trustDomains  no: the roots are trusted for workloads of all trust domains of the mesh
	caCertificates.spiffeBundleUrl
	defaultServiceExportTo
	defaultVirtualServiceExportTo
	defaultDestinationRuleExportTo
	rootNamespace
	localityLbSetting         localities
	zoneAwareLbSetting        zones
	dnsRefreshRate
	h2UpgradePolicy
	inboundClusterStatName
	outboundClusterStatName
	certificates              no: deprecated in the API; let a tool such as cert-manager issue certificates for names of DNS
	serviceSettings.settings.clusterLocal
	serviceSettings.hosts
	serviceScopeConfigs       no: they are for the ambient mode, which is not offered here
	enablePrometheusMerge
	verifyCertificateAtClient no: deprecated in the API; name the roots in caCertificates of a DestinationRule
	ca                        no: agents have these settings: CA_ADDR, CA_ROOT_CA
	extensionProviders.name
	extensionProviders.envoyExtAuthzHttp.service
	extensionProviders.envoyExtAuthzHttp.port
	extensionProviders.envoyExtAuthzHttp.timeout
	extensionProviders.envoyExtAuthzHttp.pathPrefix
	extensionProviders.envoyExtAuthzHttp.failOpen
	extensionProviders.envoyExtAuthzHttp.clearRouteCache
	extensionProviders.envoyExtAuthzHttp.statusOnError
	extensionProviders.envoyExtAuthzHttp.includeHeadersInCheck
	extensionProviders.envoyExtAuthzHttp.includeRequestHeadersInCheck
	extensionProviders.envoyExtAuthzHttp.includeAdditionalHeadersInCheck
	extensionProviders.envoyExtAuthzHttp.includeRequestBodyInCheck.maxRequestBytes
	extensionProviders.envoyExtAuthzHttp.includeRequestBodyInCheck.allowPartialMessage
	extensionProviders.envoyExtAuthzHttp.headersToUpstreamOnAllow
	extensionProviders.envoyExtAuthzHttp.headersToDownstreamOnDeny
	extensionProviders.envoyExtAuthzHttp.headersToDownstreamOnAllow
	extensionProviders.envoyExtAuthzHttp.includeRequestBodyInCheck.packAsBytes  no: it is for providers that are asked over gRPC
	extensionProviders.envoyExtAuthzGrpc.service
	extensionProviders.envoyExtAuthzGrpc.port
	extensionProviders.envoyExtAuthzGrpc.timeout
	extensionProviders.envoyExtAuthzGrpc.failOpen
	extensionProviders.envoyExtAuthzGrpc.clearRouteCache
	extensionProviders.envoyExtAuthzGrpc.statusOnError
	extensionProviders.envoyExtAuthzGrpc.includeRequestBodyInCheck.maxRequestBytes
	extensionProviders.envoyExtAuthzGrpc.includeRequestBodyInCheck.allowPartialMessage
	extensionProviders.envoyExtAuthzGrpc.includeRequestBodyInCheck.packAsBytes
	extensionProviders.zipkin.service
	extensionProviders.zipkin.port
	extensionProviders.zipkin.maxTagLength
	extensionProviders.zipkin.enable64bitTraceId
	extensionProviders.zipkin.path
	extensionProviders.zipkin.traceContextOption
	extensionProviders.zipkin.timeout
	extensionProviders.zipkin.headers                       httpHeader
	extensionProviders.lightstep  no: Envoy has no such tracer any more: name the collector as opentelemetry
	extensionProviders.datadog.service
	extensionProviders.datadog.port
	extensionProviders.datadog.maxTagLength
	extensionProviders.stackdriver  no: Envoy has no such tracer any more: name a collector as opentelemetry
	extensionProviders.opencensus  no: Envoy has no such tracer any more: name the collector as opentelemetry
	extensionProviders.skywalking.service
	extensionProviders.skywalking.port
	extensionProviders.skywalking.accessToken
	extensionProviders.opentelemetry.service
	extensionProviders.opentelemetry.port
	extensionProviders.opentelemetry.maxTagLength
	extensionProviders.opentelemetry.http                   httpBackend
	extensionProviders.opentelemetry.grpc.timeout
	extensionProviders.opentelemetry.grpc.initialMetadata   httpHeader
	extensionProviders.opentelemetry.resourceDetectors.environment
	extensionProviders.opentelemetry.resourceDetectors.dynatrace
	extensionProviders.opentelemetry.serviceAttributeEnrichment
	extensionProviders.opentelemetry.dynatraceSampler.tenant
	extensionProviders.opentelemetry.dynatraceSampler.clusterId
	extensionProviders.opentelemetry.dynatraceSampler.rootSpansPerMinute
	extensionProviders.opentelemetry.dynatraceSampler.httpService.service
	extensionProviders.opentelemetry.dynatraceSampler.httpService.port
	extensionProviders.opentelemetry.dynatraceSampler.httpService.http  httpBackend
	extensionProviders.prometheus
	extensionProviders.envoyFileAccessLog.path
	extensionProviders.envoyFileAccessLog.logFormat.text
	extensionProviders.envoyFileAccessLog.logFormat.labels
	extensionProviders.envoyFileAccessLog.omitEmptyValues
	extensionProviders.envoyHttpAls.service
	extensionProviders.envoyHttpAls.port
	extensionProviders.envoyHttpAls.logName
	extensionProviders.envoyHttpAls.filterStateObjectsToLog
	extensionProviders.envoyHttpAls.additionalRequestHeadersToLog
	extensionProviders.envoyHttpAls.additionalResponseHeadersToLog
	extensionProviders.envoyHttpAls.additionalResponseTrailersToLog
	extensionProviders.envoyTcpAls.service
	extensionProviders.envoyTcpAls.port
	extensionProviders.envoyTcpAls.logName
	extensionProviders.envoyTcpAls.filterStateObjectsToLog
	extensionProviders.envoyOtelAls.service
	extensionProviders.envoyOtelAls.port
	extensionProviders.envoyOtelAls.logName
	extensionProviders.envoyOtelAls.logFormat.text
	extensionProviders.envoyOtelAls.logFormat.labels
	extensionProviders.sds.name
	extensionProviders.sds.service
	extensionProviders.sds.port
	defaultProviders.accessLogging
	defaultProviders.tracing
	defaultProviders.metrics
	discoverySelectors        no: they select namespaces of a cluster, and none is read
	pathNormalization.normalization
	defaultHttpRetryPolicy    retries
	defaultInboundHttpRetryPolicy.attempts
	defaultInboundHttpRetryPolicy.retryOn
	defaultInboundHttpRetryPolicy.backoff
	defaultInboundHttpRetryPolicy.perTryTimeout  client
	defaultInboundHttpRetryPolicy.retryRemoteLocalities  client
	defaultInboundHttpRetryPolicy.retryIgnorePreviousHosts  client
	meshMTLS.minProtocolVersion
	meshMTLS.ecdhCurves
	meshMTLS.cipherSuites     no: the suites of mutual TLS within the mesh are Envoy's
	tlsDefaults.minProtocolVersion  no: TLS 1.2 is the least; a Sidecar's ingress listener may ask for more
	tlsDefaults.ecdhCurves
	tlsDefaults.cipherSuites
	defaultTrafficPolicy.connectionPool    pool
	defaultTrafficPolicy.outlierDetection  outliers
	serviceEntryVisibility.defaultVisibility
	serviceEntryVisibility.applyToSidecars
	serviceEntryVisibility.policies.visibility
	serviceEntryVisibility.policies.matchingRules.namespaceSelector.matchLabels
	serviceEntryVisibility.policies.matchingRules.namespaceSelector.matchExpressions.key
	serviceEntryVisibility.policies.matchingRules.namespaceSelector.matchExpressions.operator
	serviceEntryVisibility.policies.matchingRules.namespaceSelector.matchExpressions.values

proxyConfig
	configPath
	binaryPath
	serviceCluster
	tracingServiceName
	drainDuration
	terminationDrainDuration
	discoveryAddress
	controlPlaneAuthPolicy
	proxyAdminPort
	statusPort
	concurrency
	interceptionMode
	proxyMetadata
	runtimeValues
	meshId
	fileFlushInterval
	proxyHeaders.server.disabled
	proxyHeaders.server.value
	proxyHeaders.requestId.disabled
	proxyHeaders.attemptCount.disabled
	proxyHeaders.envoyDebugHeaders.disabled
	proxyHeaders.preserveHttp1HeaderCase
	proxyHeaders.xForwardedHost.enabled
	proxyHeaders.xForwardedPort.enabled
	proxyHeaders.forwardedClientCert
	proxyHeaders.setCurrentClientCertDetails.subject
	proxyHeaders.setCurrentClientCertDetails.cert
	proxyHeaders.setCurrentClientCertDetails.chain
	proxyHeaders.setCurrentClientCertDetails.dns
	proxyHeaders.setCurrentClientCertDetails.uri
	proxyHeaders.metadataExchangeHeaders      no: a header that names the workload is sent within the mesh only, by proxies with certificates of another authority
	discoveryRefreshDelay     no: each change is distributed when it happens
	zipkinAddress
	statsdUdpAddress
	envoyMetricsServiceAddress
	availabilityZone          no: the locality comes from labels of the node or the pod
	customConfigFile
	statNameLength            no: Envoy has no such limit
	proxyBootstrapTemplatePath
	tracing.zipkin.address
	tracing.datadog.address
	tracing.lightstep.address
	tracing.lightstep.accessToken
	tracing.tlsSettings       fileTLS
	tracing.stackdriver       no: Envoy has no such tracer any more
	tracing.openCensusAgent   no: Envoy has no such tracer any more
	tracing.customTags.literal.value
	tracing.customTags.environment.name
	tracing.customTags.environment.defaultValue
	tracing.customTags.header.name
	tracing.customTags.header.defaultValue
	tracing.maxPathTagLength
	tracing.sampling
	tracing.enableIstioTags
	sds                       no: certificates always come by SDS
	envoyAccessLogService     remoteService
	envoyMetricsService       remoteService
	extraStatTags             no: labels that a Telemetry adds need not be listed
	gatewayTopology.numTrustedProxies
	gatewayTopology.forwardClientCertDetails
	gatewayTopology.proxyProtocol
	readinessProbe.initialDelaySeconds
	readinessProbe.timeoutSeconds
	readinessProbe.periodSeconds
	readinessProbe.successThreshold
	readinessProbe.failureThreshold
	readinessProbe.httpGet.path
	readinessProbe.httpGet.port
	readinessProbe.httpGet.host
	readinessProbe.httpGet.scheme
	readinessProbe.httpGet.httpHeaders.name
	readinessProbe.httpGet.httpHeaders.value
	readinessProbe.tcpSocket.host
	readinessProbe.tcpSocket.port
	readinessProbe.exec.command
	readinessProbe.grpc.port
	readinessProbe.grpc.service
	proxyStatsMatcher.inclusionPrefixes
	proxyStatsMatcher.inclusionSuffixes
	proxyStatsMatcher.inclusionRegexps
	holdApplicationUntilProxyStarts
	caCertificatesPem
	image.imageType
	privateKeyProvider        no: stock Envoy is built without such providers
	fileFlushMinSizeKb
	statsCompression
	connectionSettings.profile
	connectionSettings.listenerPerConnectionBufferLimitBytes
	connectionSettings.clusterPerConnectionBufferLimitBytes
	connectionSettings.httpIdleTimeout
	connectionSettings.httpMaxConnectionDuration
	connectionSettings.httpDrainTimeout
	connectionSettings.httpRequestTimeout
	connectionSettings.httpRequestHeadersTimeout
	connectionSettings.httpStreamIdleTimeout
	connectionSettings.httpMaxStreamDuration
	connectionSettings.httpMaxConcurrentStreams
	connectionSettings.http2InitialStreamWindowSize
	connectionSettings.http2InitialConnectionWindowSize
	connectionSettings.httpHeadersWithUnderscoresAction
	connectionSettings.httpMergeSlashes
	connectionSettings.httpPathWithEscapedSlashesAction
	connectionSettings.listenerConnectionLimit          no: Envoy takes it by the name of a listener, in its runtime, which the bootstrap of a proxy cannot know; limit all connections with globalDownstreamConnectionLimit
	connectionSettings.globalDownstreamConnectionLimit

httpBackend
	path
	timeout
	headers   httpHeader

httpHeader
	name
	value
	envName

remoteService
	address
	tlsSettings   fileTLS
	tcpKeepalive  keepalive

fileTLS
	mode
	clientCertificate
	privateKey
	caCertificates
	caCrl
	subjectAltNames
	sni
	insecureSkipVerify
	credentialName  no: the bootstrap of a proxy can refer to files only; name files in clientCertificate, privateKey and caCertificates
`
