package platform

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  Cloud
	}{
		{nil, None},
		{map[string]string{"sys_vendor": "QEMU", "product_name": "Standard PC"}, None},
		{map[string]string{"sys_vendor": "Amazon EC2\n"}, Amazon},
		{map[string]string{"sys_vendor": "Xen", "bios_version": "4.11.amazon\n"}, Amazon},
		{map[string]string{"sys_vendor": "Google", "product_name": "Google Compute Engine\n"}, Google},
		{map[string]string{"sys_vendor": "Google", "product_name": "Eve"}, None}, // a laptop
		{map[string]string{"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": azureTag + "\n"}, Azure},
		{map[string]string{"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "0"}, None}, // Hyper-V
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "sys/class/dmi/id")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := Detect(root); got != c.want {
			t.Errorf("%v: %s, want %s", c.files, got, c.want)
		}
	}
}

// Answers in the form that the documentation of the clouds shows.
const (
	amazonDocument = `{"accountId": "123456789012", "architecture": "x86_64", "availabilityZone": "eu-west-1b", "instanceId": "i-0a1b", "region": "eu-west-1", "kernelId": null}`
	googleMetadata = `{"instance": {"id": 5124876503941263301, "name": "web-1", "zone": "projects/4242/zones/europe-west1-b", "attributes":
		{"cluster-name": "shop", "cluster-location": "europe-west1", "created-by": "projects/4242/zones/europe-west1-b/instanceGroupManagers/g", "ssh-keys": "a:b"}},
		"project": {"projectId": "shop-1", "numericProjectId": 4242}}`
	azureCompute = `{"name": "web-1", "location": "westeurope", "zone": "2", "vmId": "02aab8a4-74ef", "tagsList": []}`
)

// cloud serves the routes of a cloud, to requests with the required method and header.
func cloud(t *testing.T, routes map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for route, body := range routes { // METHOD PATH HEADER=VALUE
			words := strings.Fields(route)
			header, value, _ := strings.Cut(words[2], "=")
			if r.Method == words[0] && r.URL.RequestURI() == words[1] && r.Header.Get(header) == value {
				if strings.HasPrefix(body, "http") {
					http.Redirect(w, r, body, http.StatusFound)
					return
				}
				_, _ = fmt.Fprint(w, body)
				return
			}
		}
		http.Error(w, "who asks?", http.StatusForbidden)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const (
	amazonToken = "PUT /latest/api/token X-aws-ec2-metadata-token-ttl-seconds=60"
	amazonAsk   = "GET /latest/dynamic/instance-identity/document X-aws-ec2-metadata-token=t0ken"
	googleAsk   = "GET /computeMetadata/v1/?recursive=true Metadata-Flavor=Google"
	azureAsk    = "GET /metadata/instance/compute?api-version=2021-02-01 Metadata=true"
)

func TestAsk(t *testing.T) {
	for _, c := range []struct {
		cloud  Cloud
		routes map[string]string
		want   Place
	}{
		{None, nil, Place{}},
		{Amazon, map[string]string{amazonToken: "t0ken", amazonAsk: amazonDocument}, Place{"eu-west-1", "eu-west-1b", map[string]string{
			"aws_region": "eu-west-1", "aws_availability_zone": "eu-west-1b", "aws_instance_id": "i-0a1b",
		}}},
		{Google, map[string]string{googleAsk: googleMetadata}, Place{"europe-west1", "europe-west1-b", map[string]string{
			"gcp_project": "shop-1", "gcp_project_number": "4242", "gcp_location": "europe-west1", "gcp_gke_cluster_name": "shop",
			"gcp_gce_instance": "web-1", "gcp_gce_instance_id": "5124876503941263301",
			"gcp_gce_instance_created_by": "projects/4242/zones/europe-west1-b/instanceGroupManagers/g",
		}}},
		{Google, map[string]string{googleAsk: `{"instance": {"zone": "projects/1/zones/us-east4-c"}}`}, Place{"us-east4", "us-east4-c", map[string]string{"gcp_location": "us-east4-c"}}},
		{Azure, map[string]string{azureAsk: azureCompute}, Place{"westeurope", "westeurope-2", map[string]string{
			"azure_name": "web-1", "azure_location": "westeurope", "azure_vm_id": "02aab8a4-74ef",
		}}},
		{Azure, map[string]string{azureAsk: `{"location": "northeurope", "zone": ""}`}, Place{"northeurope", "", map[string]string{"azure_location": "northeurope"}}},
	} {
		got, err := Ask(t.Context(), c.cloud, cloud(t, c.routes))
		if err != nil || got.Region != c.want.Region || got.Zone != c.want.Zone || !maps.Equal(got.Metadata, c.want.Metadata) {
			t.Errorf("%s: %+v, %v; want %+v", c.cloud, got, err, c.want)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	large := `{"instance": {"name": "` + strings.Repeat("x", maxAnswer) + `"}}`
	for _, c := range []struct {
		cloud  Cloud
		routes map[string]string
		want   string
	}{
		{Amazon, nil, "PUT /latest/api/token: the answer has status 403 Forbidden"},
		{Amazon, map[string]string{amazonToken: "t0ken"}, "GET /latest/dynamic/instance-identity/document: the answer has status 403"},
		{Amazon, map[string]string{amazonToken: "t0ken", amazonAsk: "<html>"}, "the identity document: invalid character"},
		{Amazon, map[string]string{amazonToken: "t0ken", amazonAsk: "{}"}, "the answer names no region"},
		{Google, map[string]string{googleAsk: "<html>"}, "the metadata: invalid character"},
		{Google, map[string]string{googleAsk: "{}"}, "the answer names no region"},
		{Google, map[string]string{googleAsk: large}, "more than"},
		{Google, map[string]string{googleAsk: "http://127.0.0.1:1/"}, "status 302 Found"},
		{Azure, map[string]string{azureAsk: "[]"}, "the metadata: "},
		{Azure, map[string]string{azureAsk: "{}"}, "the answer names no region"},
	} {
		if got, err := Ask(t.Context(), c.cloud, cloud(t, c.routes)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %s", c.cloud, got, err, c.want)
		}
	}
}

// FuzzAnswer: no answer makes the agent panic, and a place always has a region.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{amazonDocument, googleMetadata, azureCompute, "{}", `{"instance":{"zone":"-"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) }))
		defer s.Close()
		for _, c := range []Cloud{Amazon, Google, Azure} {
			if p, err := Ask(t.Context(), c, s.URL); err == nil && p.Region == "" {
				t.Errorf("%s: %+v", c, p)
			}
		}
	})
}
