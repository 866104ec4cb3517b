// Package platform finds out in which cloud the agent runs, and where in it: the region, the zone, and the facts about the
// machine that Istio's agents put into node metadata.
//
// Invariants: Nothing is sent to any network unless the description of the machine (DMI) or the caller names the cloud. The service of
// the cloud is asked once, at its link-local address, without proxies and redirects.
//
// Goroutines: none but net/http's, which end with the question.
package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/pilotmesh/pilot/internal/run/fetch"
)

// Cloud is a cloud with a metadata service for its machines. Its text is a value of CLOUD_PLATFORM.
type Cloud string

// The clouds. None is for a machine elsewhere.
const (
	None   Cloud = "none"
	Amazon Cloud = "aws"
	Google Cloud = "gcp"
	Azure  Cloud = "azure"
)

// Address is the URL of the metadata service of all clouds.
const Address = "http://169.254.169.254"

// maxAnswer is the size of the largest answer, in bytes. Google's answer has all attributes of the machine, including its startup scripts.
const maxAnswer = 4 << 20

// Place is where a machine is.
type Place struct {
	Region, Zone string
	// Metadata is the content of PLATFORM_METADATA of Istio's agents, by the same keys.
	Metadata map[string]string
}

// azureTag is the chassis_asset_tag in the firmware of Azure's machines. Other machines of Microsoft have another one.
const azureTag = "7783-7084-3265-9085-8269-3286-77"

// Detect returns the cloud that the machine's firmware names in root/sys/class/dmi/id, which containers see as well.
func Detect(root string) Cloud {
	says := func(file string) string {
		text, err := os.ReadFile(filepath.Join(root, "sys/class/dmi/id", file))
		if err != nil {
			return "" // as in machines without DMI
		}
		return strings.TrimSpace(string(text))
	}
	switch {
	case says("sys_vendor") == "Amazon EC2", strings.Contains(says("bios_version"), "amazon"):
		return Amazon
	case says("product_name") == "Google Compute Engine":
		return Google
	case says("chassis_asset_tag") == azureTag:
		return Azure
	}
	return None
}

// Ask asks a cloud where this machine is. address is the URL of its metadata service, usually Address.
func Ask(ctx context.Context, c Cloud, address string) (Place, error) {
	s := service{address: address, client: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // no proxy
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	switch c {
	case Amazon:
		return s.amazon(ctx)
	case Google:
		return s.google(ctx)
	case Azure:
		return s.azure(ctx)
	case None:
	}
	return Place{}, nil
}

// service is a client of a cloud's metadata service.
type service struct {
	address string
	client  *http.Client
}

// get returns the body of the answer to a request with one header.
func (s service) get(ctx context.Context, method, path, header, value string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set(header, value)
	body, err := fetch.Body(s.client, req, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return body, nil
}

// amazon asks version 2 of the service, which requires a token. docs.aws.amazon.com, "Instance identity documents".
func (s service) amazon(ctx context.Context) (Place, error) {
	token, err := s.get(ctx, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	if err != nil {
		return Place{}, err
	}
	body, err := s.get(ctx, http.MethodGet, "/latest/dynamic/instance-identity/document", "X-aws-ec2-metadata-token", string(token))
	if err != nil {
		return Place{}, err
	}
	var of struct{ Region, AvailabilityZone, InstanceID string }
	if err := json.Unmarshal(body, &of); err != nil {
		return Place{}, fmt.Errorf("the identity document: %w", err)
	}
	return place(of.Region, of.AvailabilityZone, map[string]string{
		"aws_region": of.Region, "aws_availability_zone": of.AvailabilityZone, "aws_instance_id": of.InstanceID,
	})
}

// google asks for everything at once. cloud.google.com, "Predefined metadata keys".
func (s service) google(ctx context.Context) (Place, error) {
	body, err := s.get(ctx, http.MethodGet, "/computeMetadata/v1/?recursive=true", "Metadata-Flavor", "Google")
	if err != nil {
		return Place{}, err
	}
	var of struct {
		Instance struct {
			ID         json.Number
			Name, Zone string
			Attributes map[string]json.RawMessage
		}
		Project struct {
			ProjectID        string
			NumericProjectID json.Number
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&of); err != nil {
		return Place{}, fmt.Errorf("the metadata: %w", err)
	}
	attribute := func(name string) (text string) {
		if err := json.Unmarshal(of.Instance.Attributes[name], &text); err != nil {
			return "" // it does not exist, or is not a text
		}
		return text
	}
	zone := of.Instance.Zone[strings.LastIndex(of.Instance.Zone, "/")+1:] // of projects/1234/zones/europe-west1-b
	location := attribute("cluster-location")
	if location == "" {
		location = zone
	}
	return place(zone[:max(0, strings.LastIndex(zone, "-"))], zone, map[string]string{
		"gcp_project": of.Project.ProjectID, "gcp_project_number": of.Project.NumericProjectID.String(), "gcp_location": location,
		"gcp_gke_cluster_name": attribute("cluster-name"), "gcp_gce_instance": of.Instance.Name, "gcp_gce_instance_id": of.Instance.ID.String(),
		"gcp_gce_instance_template": attribute("instance-template"), "gcp_gce_instance_created_by": attribute("created-by"),
	})
}

// azure asks for the machine alone. learn.microsoft.com, "Azure Instance Metadata Service". Its zones are numbers; the nodes of its
// clusters have the labels REGION and REGION-NUMBER, so a machine beside them gets a zone of that form.
func (s service) azure(ctx context.Context) (Place, error) {
	body, err := s.get(ctx, http.MethodGet, "/metadata/instance/compute?api-version=2021-02-01", "Metadata", "true")
	if err != nil {
		return Place{}, err
	}
	var of struct{ Name, Location, Zone, VMID string }
	if err := json.Unmarshal(body, &of); err != nil {
		return Place{}, fmt.Errorf("the metadata: %w", err)
	}
	zone := ""
	if of.Zone != "" {
		zone = of.Location + "-" + of.Zone
	}
	return place(of.Location, zone, map[string]string{"azure_name": of.Name, "azure_location": of.Location, "azure_vm_id": of.VMID})
}

// place returns a place without metadata that is not known.
func place(region, zone string, metadata map[string]string) (Place, error) {
	if region == "" {
		return Place{}, errors.New("the answer names no region")
	}
	for key, value := range metadata {
		if value == "" {
			delete(metadata, key)
		}
	}
	return Place{region, zone, metadata}, nil
}
