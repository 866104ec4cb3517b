package code

// documents are the codes of Problems that one document has by itself.
func documents() []Entry {
	return []Entry{
		{"syntax", Error, "The text is not well-formed YAML or JSON, or exceeds a limit. No object of the document is read; objects that were in force before stay so.", "Correct the text at the line."},
		{"field-unknown", Either, "The kind has no field of this name. It is an error where the field was certainly meant to be another one, and where an access policy would be read without a part of it.", "Write the name that the message proposes, or remove the field."},
		{"field-invalid", Error, "A value is missing, has the wrong type, or breaks a rule of its kind. The document is refused; the last good version of the object stays in force.", "Correct the value as the message says."},
		{"field-ineffective", Warning, "A valid value has no effect here, or probably another effect than intended.", "Remove it, or change what makes it ineffective."},
		{"field-unsupported", Warning, "The field is valid in Istio, and has no effect here.", "Remove it, or see doc/differences.md for another way."},
		{"kind-unknown", Error, "No kind has this name and version, and Pilot reads objects of the group.", "Write the kind or version that the message proposes."},
		{"kind-unsupported", Warning, "Objects of this kind are not acted on.", "Remove the object, or see doc/differences.md for another way."},
		{"kind-unread", Info, "A directory has objects of Kubernetes or of other programs that have no effect here, such as Roles.", "Nothing."},
		{"object-duplicate", Either, "Several documents or sources declare the same object. One of them counts.", "Remove or rename the others."},
		{"policy-refused", Error, "An access policy is refused, and no good version of it is known: what it selects is denied.", "Correct or delete the policy."},
		{"internal-error", Error, "A bug of the control plane. What depends on it keeps its last good state.", "Report it, with the object."},
	}
}

// sources are the codes of Problems with sources of objects.
func sources() []Entry {
	return []Entry{
		{"file-unreadable", Either, "A file or directory cannot be read or watched. Its last good objects stay in force.", "Make it readable; the message has the error of the system."},
		{"file-no-object", Info, "A file has no objects of Kubernetes, such as a package.json, or is a template or part of a Helm chart. It is not read.", "Nothing, unless it should have objects: write apiVersion and kind, or have the template rendered."},
		{"file-too-large", Error, "A file exceeds the limit for its size or number of documents, and is not read.", "Split it."},
		{"mesh-config-several", Info, "Several documents have mesh configurations that differ. One of them counts.", "Name the file that counts with --meshConfig."},
		{"state-unwritable", Warning, "The last good versions of access policies, or the last good roots of SPIFFE bundles, cannot be kept or read, so they may not survive a restart.", "Give the program access to its state folder, or to its ConfigMaps."},
		{"cluster-unreadable", Either, "A Kubernetes cluster cannot be reached, or refuses something that is to be read there. The last known objects stay in force.", "Correct the address, credentials or permissions that the message names."},
		{"cluster-secret-invalid", Either, "A Secret that describes a remote cluster cannot be used.", "Correct the kubeconfig under the key that the message names."},
		{"credential-invalid", Either, "A file or Secret with a certificate, key or roots cannot be used.", "Put good content there; until then the last good one stays in use."},
		{"credential-missing", Warning, "A server of a Gateway names a Secret that is not among the Secrets in the files for the namespace of the gateways: they do not serve its hosts.", "Correct the name, or create the Secret in the namespace of the gateways."},
		{"credential-no-provider", Error, "A credentialName is for a service of an extension provider, and the proxies know no such service: connections that need it are refused.", "Add the provider to the mesh configuration, or correct its service or the name."},
		{"credential-excess", Error, "Proxies ask for more Secrets than the control plane reads for one service account, or in all. The rest is not served.", "Name fewer Secrets in the Gateways and DestinationRules of the namespace that the message names."},
		{"bundle-unknown", Error, "A SPIFFE bundle that caCertificates of the mesh configuration names could not be fetched yet, or is not valid; its roots are not trusted.", "Correct spiffeBundleUrl, or make the endpoint answer over HTTPS with a certificate of an authority of the system."},
		{"bundle-stale", Warning, "A SPIFFE bundle cannot be fetched any more, or is not valid any more; its last good roots stay in force.", "Make the endpoint answer with a valid bundle again."},
		{"authority", Error, "The certificate authority cannot work as it is set up.", "Do what the message says; workloads may get no certificates until then."},
		{"object-unsealed", Error, "A program handed over an object without sealing it.", "Pass what Seal or Decode returned."},
	}
}

// hosts are the codes of Problems with declarations of services and their visibility.
func hosts() []Entry {
	return []Entry{
		{"port-reserved", Error, "A service has a port that the proxy uses itself, so the service cannot be reached there.", "Choose another port."},
		{"selector-no-endpoint", Warning, "The workloadSelector of a ServiceEntry selects nothing at present: the service has no endpoints.", "Correct the labels, or create the WorkloadEntries."},
		{"selector-no-workload", Warning, "A selector selects no known workload: no endpoint has the labels and no such proxy is connected. The object has no effect, and a Gateway is served by nothing.", "Correct the labels, or start the workload."},
		{"workload-not-selected", Warning, "No ServiceEntry selects a WorkloadEntry, so nothing is sent to it.", "Give it the labels of a workloadSelector."},
		{"host-declared-twice", Warning, "Another object declares the same host and goes before this one.", "Give the host another name, or remove one of the declarations."},
		{"host-name-taken", Warning, "A name by which the host can be called belongs to another object for some clients.", "Call the host by its full name, or give it another one."},
		{"address-taken", Warning, "An address or TLS name belongs to another service, which gets the connections.", "Give the service an address of its own."},
		{"address-range-allocated", Warning, "A block of addresses covers many that are allocated to other ServiceEntries, and these keep them.", "Name narrower blocks, or have addresses allocated from another range."},
		{"sessions-off", Warning, "A label of a service asks for sessions, and the control plane keeps none: any endpoint may get any request.", "Start the control plane with PILOT_ENABLE_PERSISTENT_SESSION_FILTER=true, or remove the label."},
		{"sidecar-overruled", Warning, "An older Sidecar is for all workloads that this one is for, and this one is not used.", "Remove one, or give it a workloadSelector."},
		{"sidecar-no-host", Warning, "A Sidecar imports a host that no object declares.", "Correct the host, or remove the import."},
		{"sidecar-no-namespace", Warning, "A Sidecar imports from a namespace that declares nothing for it to see.", "Correct the namespace, or remove the import."},
		{"network-gateway-unresolved", Warning, "The host name of a gateway into a network cannot be resolved. The addresses of the last good answer stay in use.", "Correct the name, or make the DNS of the control plane resolve it."},
		{"limit-exceeded", Warning, "There are more parts than are looked at; the rest has no effect.", "Make fewer, or split the object."},
	}
}

// routes are the codes of Problems with the routing of requests and connections.
func routes() []Entry {
	return []Entry{
		{"route-no-host", Either, "A destination names a host that no object declares: requests to it fail with status 503. It is a warning where the destination has the weight 0.", "Correct the host, or declare it with a Service or ServiceEntry."},
		{"route-not-exported", Either, "A destination names a host that the namespace of the object does not see: traffic from that namespace to the host fails.", "Add the namespace to exportTo of the service."},
		{"route-no-port", Either, "A destination names a port that its service does not have: traffic to that port fails.", "Write one of the ports that the message lists."},
		{"route-no-subset", Either, "A destination names a subset that no DestinationRule declares: traffic to it fails.", "Write one of the subsets that the message lists, or add it to a DestinationRule."},
		{"route-overruled", Warning, "Another VirtualService has routes for the host, or a rule for the same connections to gateways, and goes first: for ports and callers of both, only those count.", "Merge the two, or remove one."},
		{"route-host-no-service", Warning, "A VirtualService is for a host that no object declares: its HTTP rules count on port 80 only.", "Correct the host, or declare it with a ServiceEntry."},
		{"route-wrong-protocol", Warning, "Rules or matches are for a protocol that no port of the hosts speaks: they do nothing.", "Declare the protocol of the port, or write rules of the other kind."},
		{"match-no-port", Warning, "A match is for a port that no service of the hosts has: it never applies.", "Write one of the ports that the message lists."},
		{"delegate-unused", Warning, "No VirtualService delegates to a delegate, so it has no effect.", "Delegate to it, or remove it."},
		{"delegate-rule-dropped", Warning, "A rule of a delegate, or one that delegates, has no effect.", "Do what the message says."},
		{"route-no-gateway", Warning, "A VirtualService names a Gateway that does not exist.", "Correct the name, or add the namespace of the Gateway."},
		{"route-not-served", Warning, "No server of its Gateways has a host of a VirtualService, or it takes routes of other namespaces only: gateways do not serve the host.", "Add the host to a server, or correct it."},
		{"gateway-no-route", Info, "No VirtualService names a Gateway: requests get status 404, and other connections are closed.", "Name the Gateway in spec.gateways of a VirtualService, or remove it."},
		{"route-foreign-host", Info, "A VirtualService has rules for a Service of another namespace, and the clients there follow them.", "Nothing if that is meant. Name the own namespace alone in exportTo if the rules are for its own clients."},
		{"match-no-token", Warning, "A match is about a claim of the token of a request, and no RequestAuthentication verifies tokens: as if no request had one.", "Add a RequestAuthentication for the gateways."},
		{"route-dubbo", Warning, "A rule for HTTP asks for something that Envoy cannot do with calls of the protocol Dubbo. It routes them by method and attachments only.", "Remove that part, or have the providers serve Triple."},
		{"route-empty", Warning, "No rule of a VirtualService is left: it counts as absent.", "Correct its delegates."},
		{"rule-no-host", Warning, "A DestinationRule is for a host that no object declares, and has no effect.", "Correct the host, or declare it."},
		{"rule-no-port", Warning, "Settings of a DestinationRule are for a port that the service does not have.", "Write one of the ports that the message lists."},
		{"rule-overruled", Warning, "Another DestinationRule has the same setting for the host and goes first.", "Merge the two, or remove one."},
		{"rule-tls-mode", Warning, "The TLS mode of a DestinationRule does not fit the mode of the workloads: every request fails.", "Remove tls, so that mutual TLS is automatic, or change the mode of the PeerAuthentication."},
		{"subset-no-endpoint", Warning, "No endpoint has the labels of a subset at present: traffic to the subset fails until one has.", "Correct the labels, or give them to an endpoint."},
		{"ingress-no-class", Warning, "An Ingress names an IngressClass that does not exist.", "Correct the name, or create the class."},
		{"ingress-no-secret", Warning, "An Ingress names no Secret for TLS, so its hosts are not served by HTTPS.", "Name the Secret with the certificate."},
		{"ingress-no-backend", Error, "The backend of a rule does not exist: its requests fail, or the rule is ignored.", "Correct the name or port of the service, or declare it."},
		{"ingress-overruled", Warning, "Another rule or certificate for the same host goes first.", "Remove one of them."},
		{"gateway-overruled", Warning, "A server of a Gateway is not used, because a server of an older Gateway has the port or the host.", "Give it another port, or other hosts."},
		{"ingress-ignored", Warning, "A part of an Ingress has no effect.", "Move it as the message says."},
	}
}

// policies are the codes of Problems with access policies.
func policies() []Entry {
	return []Entry{
		{"policy-overruled", Warning, "An older policy selects the same workloads, and this one is not used.", "Merge the two, or remove one."},
		{"telemetry-overruled", Warning, "An older Telemetry is for all workloads that this one is for, and this one is not used.", "Merge the two, or remove one."},
		{"telemetry-no-provider", Error, "The extension provider of a Telemetry does not exist, is for something else, or cannot be reached: it gets nothing.", "Add the provider to the mesh configuration, or correct its service."},
		{"policy-root-selector", Warning, "A policy of the root namespace with a selector selects no workload.", "Put it into the namespace of the workloads, or remove the selector."},
		{"policy-port", Warning, "A mode of mutual TLS is for a port that no service leads to, or that is the service's port and not the workload's.", "Write the port of the workload."},
		{"policy-no-provider", Error, "The extension provider of a policy cannot be asked: what the policy matches is denied.", "Add the provider to the mesh configuration, or correct its service."},
		{"policy-two-providers", Warning, "Policies with different providers apply to a workload: what either matches is denied.", "Use one provider per workload."},
		{"policy-provider-http", Warning, "A provider that is asked over HTTP has to decide about connections that are not HTTP: they are denied.", "Name the HTTP ports, or use a gRPC provider."},
		{"policy-no-token", Warning, "A policy is about the token of a request, and no RequestAuthentication verifies tokens for its workloads: as if no request had one.", "Add a RequestAuthentication for the workloads."},
		{"policy-no-identity", Warning, "A policy is about the identity of callers, and its workloads take no mutual TLS: as if no caller had one.", "Set the mode of the PeerAuthentication to PERMISSIVE or STRICT."},
		{"keys-unknown", Error, "The keys of an issuer of tokens are not known, so its tokens are rejected.", "Make its jwksUri reachable for the proxy or control plane that fetches it."},
		{"keys-stale", Warning, "The keys of an issuer cannot be fetched any more; the last ones stay in force.", "Make its jwksUri reachable again."},
	}
}

// clusters are the codes of Problems between clusters.
func clusters() []Entry {
	return []Entry{
		{"clusters-differ", Warning, "Services of one name in several clusters differ; the Service of the leading cluster counts.", "Make them equal."},
		{"registration-refused", Error, "A proxy asks to be registered as WorkloadEntry, and is not. Its configuration is served all the same.", "Do what the message says."},
	}
}

// running are the codes of Problems that only a control plane with proxies finds.
func registries() []Entry {
	return []Entry{
		{"config-source", Warning, "A server of configSources in the mesh configuration is not read.", "Write its address as xds://HOST:PORT, with tlsSettings that name files; read files with --configDir."},
		{"registry-attach", Warning, "A service of a registry has the host of another definition, and no port of that definition fits, or the definition takes no endpoints of others.", "Give the port of the registry the number or protocol of the definition, or the service another host with hosts."},
		{"registry-file", Error, "The registries file cannot be used; its last good version stays in force.", "Correct the file as the message says."},
		{"registry-held", Warning, "A registry does not list many instances any more after it could not be read; they stay in force for a while.", "See whether the registry has lost its data. If the instances are really gone, nothing need be done."},
		{"registry-host-conflict", Warning, "Two services of one registry have the same host; only one of them is served.", "Rename one of them, or give one another host with hosts."},
		{"registry-instance", Warning, "An instance in a registry has no address or port that clients can use, and is left out.", "Register it with an IP address or DNS name and a port."},
		{"registry-name", Warning, "The name of a service in a registry makes no host that it may have; it is not served.", "Rename the service, or give it a host with hosts."},
		{"registry-protocol", Warning, "The protocol of an instance is unknown or has a serialization that Envoy does not read, or instances disagree; the port is TCP.", "Give all instances of a port one known protocol."},
		{"registry-refused", Warning, "A registry does not let the control plane read it, or not all of it; its last services stay in force.", "Give the user or token in authFile the rights to read services and nodes."},
		{"registry-unreachable", Warning, "A registry cannot be read; its last services stay in force.", "See whether the server runs, and whether its address is right."},
		{"registry-unread", Warning, "A part of a registry cannot be read; it costs itself only.", "Correct the part as the message says."},
		{"registry-weight", Warning, "The weight of an instance is no number from 0; it counts as 1.", "Correct the weight."},
	}
}

func running() []Entry {
	return []Entry{
		{"extension-unreachable", Error, "The module of an extension is at an address that agents do not connect to: loopback, link-local, or a metadata service. The extension gets its stand-in, which lets all pass or nothing, as failStrategy says.", "Serve the module elsewhere, or name a file of the host."},
		{"extension-variable", Warning, "A variable of an extension has a name that agents keep for themselves. It is left out.", "Choose a name that does not begin with ISTIO_META_."},
		{"proxyconfig-overruled", Warning, "An older ProxyConfig is for all workloads of the namespace, too, and this one is not used.", "Merge the two, or remove one."},
		{"patch-left-out", Error, "A patch of an EnvoyFilter cannot be applied, or Envoy would refuse its result. The patch is left out there, and the rest is served; if the patch is about access, the listener or the virtual host denies.", "Correct the patch as the message says."},
		{"patch-no-match", Warning, "A patch of an EnvoyFilter matches nothing in any connected proxy to which the EnvoyFilter applies. It has no effect.", "Correct its match: `pilotctl` shows the names of listeners, routes and clusters."},
		{"patch-not-asked", Warning, "A patch of the bootstrap has no effect on connected proxies, because their agents did not ask for such patches when they started.", "Set BOOTSTRAP_XDS_AGENT=true for the agents, and restart them."},
		{"patch-removes-access", Warning, "A patch of an EnvoyFilter removes or replaces a filter that decides about access.", "Make sure that something else denies; `pilotctl can-i` shows which requests are allowed then."},
		{"proxy-id-shared", Warning, "Several proxies are connected with one node id, so they have the same name and address in their settings.", "Give each workload a name and an address of its own, or end the agent that was started twice."},
		{"hosts-on-demand-full", Warning, "A sidecar with hosts on demand has asked for as many hosts as it may have; requests for others get 404.", "Find out why the workload uses so many names, and start it again, or switch hosts on demand off for it."},
		{"proxy-rejected", Either, "A proxy has rejected a resource and keeps what it had; all else is still updated.", "Correct the object that the resource is made of, as the reason says."},
		{"proxy-unacknowledged", Warning, "A proxy has been sent a resource and does not acknowledge it.", "See whether endpoints can be resolved and certificates fetched."},
		{"resource-missing", Warning, "A proxy asks for a resource that it does not get: a secret or an extension.", "Create it, or permit it, as the message says."},
	}
}
