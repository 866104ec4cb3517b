package proxies

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// served asks a pod of reviews v1 how many requests it has answered.
func served(ctx context.Context, p *core.Pod) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Status.PodIP+":9031/served", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(body)))
}

// busy waits until there are n pods of reviews v1, all of them ready and with requests, and none of an excluded UID is left.
func (s *stage) busy(n int, gone types.UID) []core.Pod {
	s.Helper()
	var pods []core.Pod
	s.until(fmt.Sprintf("%d pods of reviews v1 to answer requests", n), func(ctx context.Context) (err error) {
		if pods, err = s.version(ctx, "v1"); err != nil || len(pods) != n {
			return fmt.Errorf("there are %d: %w", len(pods), err)
		}
		for _, p := range pods {
			if p.UID == gone || !ready(&p) {
				return fmt.Errorf("%s is ready: %v; to be gone: %v", p.Name, ready(&p), p.UID == gone)
			}
			if got, err := served(ctx, &p); err != nil || got == 0 {
				return fmt.Errorf("%s has answered %d requests: %w", p.Name, got, err)
			}
		}
		return nil
	})
	return pods
}

// TestPods: a pod that becomes ready is sent requests, and no request is lost on one that is deleted.
func TestPods(t *testing.T) {
	s := on(t)
	scale := func(n int) {
		s.kubectl("scale", "-n", "bookstore", "deployment/reviews-v1", fmt.Sprintf("--replicas=%d", n))
	}
	s.busy(1, "")
	scale(2)
	old := s.busy(2, "")[0]
	s.kubectl("delete", "pod", "-n", "bookstore", old.Name, "--wait=false")
	s.busy(2, old.UID)
	scale(1)
	s.busy(1, old.UID)
	s.noneFailed()
}
