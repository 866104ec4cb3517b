// Package webhook answers the admission requests of API servers: /inject adds the proxy to new pods, /validate refuses configuration that the
// control plane could not use. Both decide with the functions that files use.
//
// Invariants: each request gets an answer, also if its object makes the code panic. A pod of the control plane's own namespace is always
// admitted, because otherwise a mistake in a setting could keep the control plane from starting. An object that is being deleted is always
// admitted.
//
// Goroutines: the package starts none. Requests are independent of each other.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/inject"
	"github.com/pilotmesh/pilot/internal/inject/owner"
	"github.com/pilotmesh/pilot/internal/inject/tree"
)

const (
	// maxReview is the size of the largest request, in bytes. An API server takes objects of 3 MB, and may send the former one with it.
	maxReview = 8 << 20
	// maxMessages limits how many problems an answer has.
	maxMessages = 10
)

// SelfTest is the name of a WorkloadEntry that a control plane refuses as a dry run if it has the label istio.io/rev of its revision, and with the
// text of SelfTestAnswer. So it learns whether API servers reach it, and no other revision.
const SelfTest = "pilot-webhook-self-test"

// SelfTestAnswer is why the control plane of a revision refuses the object of a self-test.
func SelfTestAnswer(revision string) string {
	return "the self-test of the revision " + revision + " has succeeded"
}

// Event is an outcome that is counted.
type Event int

// The outcomes.
const (
	Injected Event = iota
	Skipped
	InjectionFailed
	Valid
	Invalid
	Unreadable
)

// Server answers admission requests.
type Server struct {
	// Injector returns the present injector, nil if there is none yet.
	Injector func() *inject.Injector
	// Namespace returns a namespace; nil means that only its name is known.
	Namespace func(ctx context.Context, name string) *inject.Namespace
	// Control is the namespace of the control plane, and Revision its value of istio.io/rev.
	Control, Revision string
	// Observe is called with each outcome.
	Observe func(Event)
	Log     *slog.Logger
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/inject", "/inject/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			s.serve(w, r, func(q *admission.AdmissionRequest) *admission.AdmissionResponse {
				return s.inject(r.Context(), r.URL.Path, q)
			})
		})
	}
	for _, path := range []string{"/validate", "/validate/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, s.validate) })
	}
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if s.Injector() == nil {
			http.Error(w, "the settings of injection have not been read yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// serve reads a request, and writes the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer func(*admission.AdmissionRequest) *admission.AdmissionResponse) {
	review, status, err := read(w, r)
	if err != nil {
		s.Observe(Unreadable)
		s.Log.Warn("an admission request cannot be read", "path", r.URL.Path, "error", err)
		http.Error(w, err.Error(), status)
		return
	}
	response := contained(review.Request, answer)
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	body, err := json.Marshal(review)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		s.Log.Warn("the answer to an admission request cannot be sent", "path", r.URL.Path, "error", err)
	}
}

func read(w http.ResponseWriter, r *http.Request) (*admission.AdmissionReview, int, error) {
	if r.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, errors.New("send an AdmissionReview with POST")
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("the Content-Type is %q; send application/json", r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("reading the AdmissionReview: %w", err)
	}
	review := &admission.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("the body is no AdmissionReview: %w", err)
	}
	if review.Request == nil || review.APIVersion != admission.SchemeGroupVersion.String() {
		return nil, http.StatusBadRequest, fmt.Errorf("the body has no request of the version %s", admission.SchemeGroupVersion)
	}
	return review, http.StatusOK, nil
}

// contained answers a request. A panic becomes a refusal: an object must not be admitted because it breaks the check.
func contained(q *admission.AdmissionRequest, answer func(*admission.AdmissionRequest) *admission.AdmissionResponse) (response *admission.AdmissionResponse) {
	defer func() {
		if p := recover(); p != nil {
			response = refused(http.StatusInternalServerError, fmt.Sprintf("internal error, please report it together with the object: %v", p))
		}
	}()
	return answer(q)
}

func allowed(warnings ...string) *admission.AdmissionResponse {
	return &admission.AdmissionResponse{Allowed: true, Warnings: warnings}
}

func refused(code int32, message string, warnings ...string) *admission.AdmissionResponse {
	return &admission.AdmissionResponse{Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}, Warnings: warnings}
}

// inject answers for a pod.
func (s *Server) inject(ctx context.Context, path string, q *admission.AdmissionRequest) *admission.AdmissionResponse {
	if q.Operation != admission.Create && q.Operation != "" || q.SubResource != "" {
		return allowed()
	}
	var pod corev1.Pod
	if err := json.Unmarshal(q.Object.Raw, &pod); err != nil {
		s.Observe(InjectionFailed)
		return refused(http.StatusBadRequest, fmt.Sprintf("the object is no pod: %v", err))
	}
	if pod.Namespace == "" {
		pod.Namespace = q.Namespace
	}
	injector := s.Injector()
	if injector == nil && pod.Namespace == s.Control {
		s.Observe(Skipped)
		return allowed("the pod has no proxy: the settings of injection have not been read yet")
	}
	if injector == nil {
		s.Observe(InjectionFailed)
		return refused(http.StatusServiceUnavailable, "the settings of injection have not been read yet; the pod is tried again")
	}
	if d := injector.DecideSelected(&pod); !d.Inject {
		s.Observe(Skipped)
		s.Log.Debug("a pod is not injected", "namespace", pod.Namespace, "pod", nameOf(&pod), "reason", d.Reason)
		return allowed()
	}
	response, err := s.patched(ctx, injector, path, &pod)
	switch {
	case err == nil:
		s.Observe(Injected)
		return response
	case pod.Namespace == s.Control:
		s.Observe(InjectionFailed)
		s.Log.Warn("a pod of the control plane's namespace is admitted without a proxy", "pod", nameOf(&pod), "error", err)
		return allowed(fmt.Sprintf("the pod has no proxy: %v", err))
	}
	s.Observe(InjectionFailed)
	s.Log.Warn("a pod is refused", "namespace", pod.Namespace, "pod", nameOf(&pod), "error", err)
	return refused(http.StatusUnprocessableEntity, fmt.Sprintf("the pod cannot get its proxy: %v", err))
}

// patched returns the answer with the patch of a pod.
func (s *Server) patched(ctx context.Context, injector *inject.Injector, path string, pod *corev1.Pod) (*admission.AdmissionResponse, error) {
	r := inject.Request{Pod: pod, Owner: owner.Of(pod), Namespace: s.Namespace(ctx, pod.Namespace)}
	if r.Namespace == nil {
		r.Namespace = &inject.Namespace{Name: pod.Namespace}
	}
	warning := parameters(path, &r)
	result, err := injector.Inject(r)
	if err != nil {
		return nil, err
	}
	patch, err := tree.Patch(pod, result.Pod)
	if err != nil {
		return nil, err
	}
	kind := admission.PatchTypeJSONPatch
	response := allowed(append(warning, result.Warnings...)...)
	response.Patch, response.PatchType = patch, &kind
	return response, nil
}

// parameters reads what the path of the webhook says about the cluster that asks: /inject/cluster/NAME/net/NAME. Further pairs are variables
// of the proxy. A slash in a value is written as --slash--. A last name without a value has no effect: a path made from settings ends with one
// where the network has no name.
func parameters(path string, into *inject.Request) (warnings []string) {
	rest := strings.Trim(strings.TrimPrefix(path, "/inject"), "/")
	if rest == "" {
		return nil
	}
	words := strings.Split(rest, "/")
	if last := len(words) - 1; len(words)%2 != 0 {
		warnings = []string{fmt.Sprintf("the path %s of the webhook has no value for %s; write /inject/cluster/NAME/net/NAME", path, words[last])}
		words = words[:last]
	}
	for n := 0; n < len(words); n += 2 {
		value := strings.ReplaceAll(words[n+1], "--slash--", "/")
		switch name := words[n]; name {
		case "cluster":
			into.Cluster = value
		case "net":
			into.Network = value
		default:
			if into.Env == nil {
				into.Env = map[string]string{}
			}
			into.Env[strings.ToUpper(name)] = value
		}
	}
	return warnings
}

// nameOf returns the name of a pod, or the beginning of the name that it will get.
func nameOf(pod *corev1.Pod) string {
	if pod.Name != "" {
		return pod.Name
	}
	return pod.GenerateName
}

// validate answers for an object of the mesh. Warnings reach the user, too.
func (s *Server) validate(q *admission.AdmissionRequest) *admission.AdmissionResponse {
	if q.Operation != admission.Create && q.Operation != admission.Update || q.SubResource != "" {
		return allowed()
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(q.Object.Raw, &meta); err == nil && meta.DeletionTimestamp != nil {
		return allowed() // to remove a finalizer must not require a repair of the object first
	}
	if meta.Name == SelfTest && q.DryRun != nil && *q.DryRun {
		if meta.Namespace == s.Control && meta.Labels["istio.io/rev"] == s.Revision {
			return refused(http.StatusUnprocessableEntity, SelfTestAnswer(s.Revision))
		}
		return allowed()
	}
	var mistakes, warnings []string
	for _, d := range api.Decode("", q.Object.Raw) {
		d.Check()
		for _, p := range d.Problems {
			text := p.Reason
			if p.Field != "" {
				text = p.Field + " " + text
			}
			text += " [" + string(p.Code) + "]"
			switch p.Severity {
			case api.Error:
				mistakes = append(mistakes, text)
			case api.Warning:
				warnings = append(warnings, text)
			case api.Info:
			}
		}
	}
	warnings = warnings[:min(len(warnings), maxMessages)]
	if len(mistakes) == 0 {
		s.Observe(Valid)
		return allowed(warnings...)
	}
	s.Observe(Invalid)
	if more := len(mistakes) - maxMessages; more > 0 {
		mistakes = append(mistakes[:maxMessages], fmt.Sprintf("and %d more", more))
	}
	return refused(http.StatusUnprocessableEntity, strings.Join(mistakes, "; "), warnings...)
}
