// Package network is what a Kubernetes node has beside its kubelet, for all nodes of a test cluster at once: it makes
// service addresses work, hands out LoadBalancer addresses and answers DNS.
//
// All nodes live in one network namespace, so one nftables table serves every pod and the machine itself. Packets from pod
// to pod pass that namespace's routing in both directions (pods have addresses of their own with nothing on link), which
// is why translation needs neither br_netfilter nor masquerading: a pod sees the real address of its caller.
//
// One goroutine owns all state: it takes what informers report, brings nftables, addresses and the tables of the DNS
// server up to date, and stops with the context of Run. The DNS server has its own goroutines, which read those tables under a lock.
// The package knows Kubernetes types and nothing of how the cluster's processes run.
package network
