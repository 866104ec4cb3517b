package backend

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// The echo on authzPort is an external authorizer too: over HTTP any request is a question, over gRPC the Check method is. Both refuse a request that
// carries `exam-authz: deny` and mark allowed ones with `exam-authorized: yes`.
const (
	authzPort    = "8089"
	authzQuery   = "exam-authz"
	authzMark    = "exam-authorized"
	authzMethod  = "/envoy.service.auth.v3.Authorization/Check"
	authzRefusal = "denied by the exam"
)

type authorizer struct {
	auth.UnimplementedAuthorizationServer
}

func newAuthorizer() *grpc.Server {
	s := grpc.NewServer()
	auth.RegisterAuthorizationServer(s, authorizer{})
	return s
}

func (authorizer) Check(_ context.Context, r *auth.CheckRequest) (*auth.CheckResponse, error) {
	mark := []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: authzMark, Value: "yes"}}}
	if r.GetAttributes().GetRequest().GetHttp().GetHeaders()[authzQuery] == "deny" {
		return &auth.CheckResponse{
			Status: &status.Status{Code: int32(codes.PermissionDenied)},
			HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_Forbidden}, Body: authzRefusal,
			}},
		}, nil
	}
	return &auth.CheckResponse{
		Status:       &status.Status{Code: int32(codes.OK)},
		HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{Headers: mark}},
	}, nil
}
