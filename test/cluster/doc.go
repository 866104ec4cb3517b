// Package cluster starts a real Kubernetes on this machine, without a container engine: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler as processes, nodes of package podrunner whose pods are processes in network
// namespaces, and around them what a node has beside its kubelet: service addresses, cluster DNS and LoadBalancer
// addresses (package network).
//
// Everything a cluster makes belongs to its slot, a small number that it holds through an abstract socket: address
// ranges (10.64+slot.0.0/16, fd70:6d:slot::/48), the names of network devices (pkNN...), the nftables table (pilot-NN), a loopback
// address (127.77.slot.1) for what only the control plane needs. So clusters run side by side and nothing asks for a free port.
//
// Everything that a cluster makes goes away with it, whatever happens: child processes die with the thread that started them, and that
// thread lives as long as the cluster; devices, rules, mounts and files are removed by Close, or, if this process ends
// in another way, by the reaper, a small shell process that waits for that and holds the slot until it is done. What
// stays is that the machine forwards IP packets (net.ipv4.ip_forward and the like) and allows more inotify instances.
//
// Without nodes a cluster needs no privileges at all. With nodes it needs root, namespaces and nftables; Able says
// whether this machine provides them.
//
// Goroutines: one that starts processes, one per process that waits for its end, one per node, and the goroutines of package network. Close waits for
// all of them. A Cluster may be used by many goroutines.
package cluster
