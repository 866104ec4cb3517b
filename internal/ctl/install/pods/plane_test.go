package pods

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestControlPlane: only ready pods that do not end are asked, and the control plane without a revision goes before others.
func TestControlPlane(t *testing.T) {
	pod := func(name, revision string, ready core.ConditionStatus, ending bool) core.Pod {
		p := core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: name, Labels: map[string]string{"istio.io/rev": revision}}}
		p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: ready}}
		if ending {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		return p
	}
	canary := []core.Pod{pod("canary", "canary", core.ConditionTrue, false), pod("starts", "canary", core.ConditionFalse, false), pod("ends", "canary", core.ConditionTrue, true)}
	for _, c := range []struct {
		revision string
		pods     []core.Pod
		asked    string
		want     [][2]string
	}{
		{"", append(canary, pod("default", "default", core.ConditionTrue, false)), "app=istiod", [][2]string{{"mesh", "default"}}},
		{"", canary, "app=istiod", [][2]string{{"mesh", "canary"}}},
		{"canary", canary, "app=istiod,istio.io/rev=canary", [][2]string{{"mesh", "canary"}}},
		{"", nil, "app=istiod", nil},
	} {
		asked := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.Query().Get("labelSelector")
			w.Header().Set("Content-Type", "application/json")
			list := core.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: c.pods}
			_ = json.NewEncoder(w).Encode(list) //nolint:errchkjson // the test sees the answer
		}))
		client, err := Connect(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		found, err := client.ControlPlane(t.Context(), c.revision)
		server.Close()
		if err != nil || !reflect.DeepEqual(found, c.want) || asked != c.asked {
			t.Errorf("revision %q: %v after %s, %v; want %v", c.revision, found, asked, err, c.want)
		}
	}
}
