package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"

	v1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/podrunner/container"
)

// Tokens gives the token that a projected source asks for; it is asked each time the volume is written.
type Tokens interface {
	Token(source *v1.ServiceAccountTokenProjection) ([]byte, error)
}

// FromObjects reports whether a volume's files come from objects.
func FromObjects(source *v1.VolumeSource) bool {
	return source.ConfigMap != nil || source.Secret != nil || source.DownwardAPI != nil || source.Projected != nil
}

// Files are what a volume made of objects shall hold now.
func Files(source *v1.VolumeSource, facts container.Facts, sources container.Sources, tokens Tokens) (map[string]File, error) {
	c := collector{facts: facts, sources: sources, tokens: tokens, files: make(map[string]File)}
	switch {
	case source.ConfigMap != nil:
		v := source.ConfigMap
		return c.files, c.configMap(v.Name, v.Items, v.Optional, v.DefaultMode)
	case source.Secret != nil:
		v := source.Secret
		return c.files, c.secret(v.SecretName, v.Items, v.Optional, v.DefaultMode)
	case source.DownwardAPI != nil:
		return c.files, c.downward(source.DownwardAPI.Items, source.DownwardAPI.DefaultMode)
	}
	for _, part := range source.Projected.Sources {
		if err := c.projection(&part, source.Projected.DefaultMode); err != nil {
			return nil, err
		}
	}
	return c.files, nil
}

type collector struct {
	facts   container.Facts
	sources container.Sources
	tokens  Tokens
	files   map[string]File
}

func (c *collector) projection(part *v1.VolumeProjection, mode *int32) error {
	switch {
	case part.ConfigMap != nil:
		return c.configMap(part.ConfigMap.Name, part.ConfigMap.Items, part.ConfigMap.Optional, mode)
	case part.Secret != nil:
		return c.secret(part.Secret.Name, part.Secret.Items, part.Secret.Optional, mode)
	case part.DownwardAPI != nil:
		return c.downward(part.DownwardAPI.Items, mode)
	case part.ServiceAccountToken != nil:
		return c.token(part.ServiceAccountToken, mode)
	}
	return errors.New("podrunner knows no such projected source (it has configMap, secret, downwardAPI, serviceAccountToken)")
}

func (c *collector) configMap(name string, items []v1.KeyToPath, optional *bool, mode *int32) error {
	object, err := c.sources.ConfigMap(name)
	if err != nil {
		return absent(err, optional, "configmap", name)
	}
	data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, object.BinaryData)
	return c.keys(data, items, optional, mode)
}

func (c *collector) secret(name string, items []v1.KeyToPath, optional *bool, mode *int32) error {
	object, err := c.sources.Secret(name)
	if err != nil {
		return absent(err, optional, "secret", name)
	}
	return c.keys(object.Data, items, optional, mode)
}

func absent(err error, optional *bool, kind, name string) error {
	if !errors.Is(err, container.ErrNotFound) {
		return err
	}
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q not found", kind, name)
}

func (c *collector) keys(data map[string][]byte, items []v1.KeyToPath, optional *bool, mode *int32) error {
	if len(items) == 0 {
		for key, value := range data {
			c.files[key] = File{Data: value, Mode: permission(nil, mode)}
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && (optional == nil || !*optional) {
			return fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		if ok {
			c.files[path.Clean(item.Path)] = File{Data: value, Mode: permission(item.Mode, mode)}
		}
	}
	return nil
}

func (c *collector) downward(items []v1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = container.Field(c.facts, item.FieldRef.FieldPath)
		} else if item.ResourceFieldRef != nil {
			value, err = container.Resource(c.facts, nil, item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		c.files[path.Clean(item.Path)] = File{Data: []byte(value), Mode: permission(item.Mode, mode)}
	}
	return nil
}

// token files are for their user alone when all containers agree who that is, and for the volume's group when there is
// one; otherwise all users must be able to read them.
func (c *collector) token(source *v1.ServiceAccountTokenProjection, mode *int32) error {
	text, err := c.tokens.Token(source)
	if err != nil {
		return err
	}
	file := File{Data: text, Mode: 0o644}
	if context := c.facts.Pod.Spec.SecurityContext; context != nil && context.FSGroup != nil {
		file.Mode = 0o600
	} else if user := oneUser(c.facts.Pod); user != nil {
		file.Mode, file.User = 0o600, int(*user)
	} else {
		file.Mode = max(file.Mode, permission(nil, mode)&0o644)
	}
	c.files[path.Clean(source.Path)] = file
	return nil
}

// oneUser is the user that every container says it runs as, if they all say the same.
func oneUser(pod *v1.Pod) *int64 {
	var one *int64
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, spec := range list {
			user := (*int64)(nil)
			if pod.Spec.SecurityContext != nil {
				user = pod.Spec.SecurityContext.RunAsUser
			}
			if spec.SecurityContext != nil && spec.SecurityContext.RunAsUser != nil {
				user = spec.SecurityContext.RunAsUser
			}
			if user == nil || one != nil && *one != *user {
				return nil
			}
			one = user
		}
	}
	return one
}

func permission(own, common *int32) fs.FileMode {
	switch {
	case own != nil:
		return fs.FileMode(*own)
	case common != nil:
		return fs.FileMode(*common)
	}
	return 0o644
}
