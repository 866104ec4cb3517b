package accepted

// service draws a Kubernetes Service, and pods or slices for it.
func (d draw) service() []tree {
	name := pick(d, []string{"k", "k2", "a"})
	ports := []any{}
	for i := range d.length() {
		port := tree{"name": pick(d, []string{"http", "tcp", "grpc-x", "", "https", "udp", "tls-a", "http3"}), "port": pick(d, []int{80, 443, 9090, 53, 15001, 3306}) + i}
		if d.chance(30) {
			port["appProtocol"] = pick(d, []string{"http", "kubernetes.io/h2c", "tcp", "x", "kubernetes.io/ws", "https", "mongo"})
		}
		if d.chance(40) {
			port["targetPort"] = pick(d, []any{8080, "web", "none", 65535})
		}
		if d.chance(15) {
			port["protocol"] = pick(d, []string{"UDP", "SCTP", "TCP"})
		}
		ports = append(ports, port)
	}
	spec := tree{"ports": ports, "clusterIP": pick(d, []string{"10.9.0.20", "None", "", "2001:db8::20", "10.9.0.21"}), "selector": tree{"app": "a"}}
	if d.chance(15) {
		spec["type"] = pick(d, []string{"ExternalName", "LoadBalancer", "NodePort"})
		spec["externalName"] = pick(d, append(hosts(), "a.", "x y"))
	}
	for name, list := range map[string][]string{
		"sessionAffinity": {"ClientIP"}, "internalTrafficPolicy": {"Local"}, "trafficDistribution": {"PreferClose", "PreferSameNode", "x"},
	} {
		if d.chance(15) {
			spec[name] = pick(d, list)
		}
	}
	annotations := tree{}
	for name, list := range map[string][]string{
		"networking.istio.io/exportTo": {"*", ".", "~", "shop,other"}, "networking.istio.io/traffic-distribution": {"PreferClose", "x"},
		"alpha.istio.io/canonical-serviceaccounts": {"spiffe://x/ns/a/sa/b", "é", ","}, "alpha.istio.io/kubernetes-serviceaccounts": {"a", "a b", ","},
	} {
		if d.chance(10) {
			annotations[name] = pick(d, list)
		}
	}
	return []tree{
		{"apiVersion": "v1", "kind": "Service", "metadata": tree{"name": name, "namespace": "shop", "annotations": annotations}, "spec": spec},
		d.slice(name), d.pod(),
	}
}

func (d draw) slice(service string) tree {
	endpoints := []any{}
	for range d.length() {
		one := tree{"addresses": []any{pick(d, []string{"10.1.0.1", "10.1.0.7", "2001:db8::7", "127.0.0.1", "0.0.0.0", "::ffff:10.1.0.9"})}}
		if d.chance(20) {
			one["hostname"] = pick(d, []string{"a-0", "é", ""})
		}
		if d.chance(20) {
			one["conditions"] = tree{"ready": d.chance(50), "serving": d.chance(50), "terminating": d.chance(50)}
		}
		endpoints = append(endpoints, one)
	}
	return tree{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": tree{"name": "s1", "namespace": "shop", "labels": tree{"kubernetes.io/service-name": service}},
		"ports":    []any{tree{"name": pick(d, []string{"http", "", "tcp"}), "port": pick(d, []int{80, 8080, 0, 65535})}},
	}
}

func (d draw) pod() tree {
	labels := tree{"app": pick(d, []string{"a", "b"}), "version": "v1"}
	if d.chance(20) {
		labels["topology.istio.io/network"] = pick(d, odd())
	}
	if d.chance(20) {
		labels["istio-locality"] = pick(d, odd())
	}
	return tree{
		"apiVersion": "v1", "kind": "Pod", "metadata": tree{"name": "p-1", "namespace": "shop", "labels": labels},
		"spec": tree{
			"serviceAccountName": pick(d, []string{"a", "", "é"}), "nodeName": "n",
			"containers": []any{tree{"name": "c", "ports": []any{tree{"name": "web", "containerPort": pick(d, []int{80, 8080, 15001, 0})}}}},
		},
		"status": tree{"podIP": pick(d, []string{"10.1.0.1", "10.1.0.7", "2001:db8::7"}), "phase": "Running"},
	}
}

// base are the objects that are always there, so that the drawn ones have something to be about.
const base = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: base-a, namespace: shop}
spec:
  hosts: [a.shop.svc.cluster.local]
  addresses: [10.9.0.1]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 9090, name: tcp, protocol: TCP}, {number: 443, name: tls, protocol: TLS}, {number: 8080, name: auto}, {number: 9443, name: https, protocol: HTTPS}]
  endpoints: [{address: 10.1.0.1, labels: {app: a, version: v1}, locality: r1/z1/s1, serviceAccount: a}, {address: 10.1.0.3, labels: {app: a, version: v2}, locality: r2/z2}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: base-b, namespace: shop}
spec:
  hosts: [b.shop.svc.cluster.local]
  addresses: [10.9.0.2]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 100, name: grpc, protocol: GRPC}]
  endpoints: [{address: 10.1.0.2, labels: {app: b, version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: base-d, namespace: shop}
spec:
  hosts: [d.example.com]
  resolution: DNS
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: https, protocol: HTTPS}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: base-t, namespace: shop}
spec:
  hosts: [t.example.com, "*.example.com"]
  resolution: NONE
  ports: [{number: 443, name: tls, protocol: TLS}, {number: 80, name: http, protocol: HTTP}, {number: 3306, name: mysql, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: base-a, namespace: shop}
spec: {host: a.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw-0, namespace: shop}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*.example.com"], tls: {mode: SIMPLE, credentialName: cred}}
  - {port: {number: 15443, name: tls, protocol: TLS}, hosts: ["*"], tls: {mode: AUTO_PASSTHROUGH}}
  - {port: {number: 9090, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: base-gw, namespace: shop}
spec:
  hosts: ["*"]
  gateways: [gw-0]
  http: [{route: [{destination: {host: a.shop.svc.cluster.local, port: {number: 80}}}]}]
  tcp: [{route: [{destination: {host: a.shop.svc.cluster.local, port: {number: 9090}}}]}]
`
