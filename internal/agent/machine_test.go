package agent

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestLocate: the node has the place that the cloud reports, unless a label sets the locality of the workload; a cloud that does not answer
// delays the start a little, and the log has the remedy.
func TestLocate(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"name": "vm-1", "location": "westeurope", "zone": "2"}`)
	}))
	defer s.Close()
	for label, want := range map[string]string{"": "westeurope westeurope-2", "istio-locality=home.cellar": "home cellar"} {
		var env []string
		if name, value, ok := strings.Cut(label, "="); ok {
			env = []string{fmt.Sprintf(`ISTIO_METAJSON_LABELS={%q: %q}`, name, value)}
		}
		set := settings(t, append(env, "CLOUD_PLATFORM=azure"))
		c, err := Boot(set, Machine{Memory: math.MaxUint64, Place: locate(t.Context(), set, s.URL, slog.New(slog.DiscardHandler))})
		if err != nil {
			t.Fatal(err)
		}
		l := c.Node.GetLocality()
		told := c.Node.GetMetadata().GetFields()["PLATFORM_METADATA"].GetStructValue().GetFields()["azure_name"].GetStringValue()
		if l.GetRegion()+" "+l.GetZone() != want || told != "vm-1" {
			t.Errorf("%s: locality %v, name %q", label, l, told)
		}
	}
}

func TestLocateInVain(t *testing.T) {
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	defer s.Close()
	defer close(ended)
	var log strings.Builder
	began := time.Now()
	place := locate(t.Context(), settings(t, []string{"CLOUD_PLATFORM=aws"}), s.URL, slog.New(slog.NewTextHandler(&log, nil)))
	if place.Region != "" || !strings.Contains(log.String(), "CLOUD_PLATFORM=none") || time.Since(began) < asking {
		t.Errorf("%+v after %v: %s", place, time.Since(began), log.String())
	}
	log.Reset()
	if place := locate(t.Context(), settings(t, []string{"CLOUD_PLATFORM=none"}), s.URL, slog.New(slog.NewTextHandler(&log, nil))); place.Region != "" || log.Len() > 0 {
		t.Errorf("%+v, %s", place, log.String())
	}
}
