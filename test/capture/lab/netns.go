package lab

// quiet are settings that keep addresses and routes from changing by themselves.
var quiet = map[string]string{
	"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0", "ipv6/conf/all/accept_dad": "0",
	"ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/router_solicitations": "0", "ipv6/conf/default/accept_ra": "0",
}
