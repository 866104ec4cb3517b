package plugin

import (
	"encoding/json"
	"testing"
)

// TestPodOf: the pod comes from CNI_ARGS, which may have more.
func TestPodOf(t *testing.T) {
	for args, want := range map[string]string{
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u": "shop/web-1 u",
		"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web":                                                              "shop/web ",
		"":                      "/ ",
		"K8S_POD_NAME;;=;x=y=z": "/ ",
	} {
		if r := podOf(args); r.Pod()+" "+r.UID != want {
			t.Errorf("%q: %s %s, want %s", args, r.Pod(), r.UID, want)
		}
	}
}

// FuzzConfig: whatever a runtime writes to the standard input, the plugin has a configuration or an error.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","name":"n","type":"pilot-cni","cni_agent_run_dir":"/run","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.1.1/24"}]}}`))
	f.Add([]byte(`{"cniVersion":"0.3.1","prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.1.1/24"}],"dns":{}}}`))
	f.Add([]byte(`{"cniVersion":"9","prevResult":{}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		conf, err := parseConfig(stdin)
		if err == nil && conf.PrevResult != nil {
			if _, err := json.Marshal(conf.PrevResult); err != nil {
				t.Errorf("the result of the plugin before cannot be passed on: %v", err)
			}
		}
	})
}
