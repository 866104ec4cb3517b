package connection

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

func reported(t *testing.T, settings string) *structpb.Struct {
	t.Helper()
	m := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(`{"PROXY_CONFIG": {"connectionSettings": `+settings+`}}`), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestReported: a proxy has the values of its profile unless it sets others, also others that are 0.
func TestReported(t *testing.T) {
	changed := edge()
	changed.Idle, changed.MergeSlashes, changed.Underscores = Limit[time.Duration]{true, 0}, Limit[bool]{true, false}, 1
	for text, want := range map[string][]Settings{
		`null`: nil,
		`{}`:   {{}},
		`{"listenerPerConnectionBufferLimitBytes": 0, "new": 1}`: {{ListenerBuffer: Limit[uint32]{true, 0}}},
		`{"profile": "EDGE"}`: {edge()},
		`{"profile": "EDGE", "httpIdleTimeout": "0s", "httpMergeSlashes": false, "httpHeadersWithUnderscoresAction": "HEADERS_WITH_UNDERSCORES_ALLOW"}`: {changed},
	} {
		if got, err := Reported(reported(t, text)); err != nil || !slices.Equal(got.Items(), want) {
			t.Errorf("%s: %v, %+v", text, err, got)
		}
	}
	if got, err := Reported(nil); err != nil || !got.Empty() {
		t.Errorf("without metadata: %v, %v", err, got)
	}
}

// TestRefused: what Envoy would refuse is refused, with the field.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"httpIdleTimeout": "soon"}`:                    "connectionSettings: ",
		`{"httpRequestTimeout": "-1s"}`:                  "a timeout of -1s is below 0",
		`{"http2InitialStreamWindowSize": 4096}`:         "http2InitialStreamWindowSize: 4096 is not between 65535 and 2147483647",
		`{"http2InitialConnectionWindowSize": 65534}`:    "http2InitialConnectionWindowSize: 65534",
		`{"httpMaxConcurrentStreams": 0}`:                "httpMaxConcurrentStreams: 0 is not between 1",
		`{"listenerPerConnectionBufferLimitBytes": -1}`:  "listenerPerConnectionBufferLimitBytes: -1",
		`{"clusterPerConnectionBufferLimitBytes": -100}`: "clusterPerConnectionBufferLimitBytes: -100",
	} {
		if _, err := Reported(reported(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}
