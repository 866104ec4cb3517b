package nacos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

const (
	// portOffset is how far the port for gRPC is from that for HTTP.
	portOffset = 1000
	// greeting is how long a server may take to accept a connection.
	greeting = 3 * time.Second
	// registering is the pause before a server that does not know the connection yet is asked again.
	registering = 50 * time.Millisecond
	maxMessage  = 64 << 20
	// unregistered is the code for a connection that the server does not know yet, and forbidden the code for a user without rights.
	unregistered, forbidden = 301, 403
)

// The methods and types of the protocol.
const (
	callMethod   = "/Request/request"
	streamMethod = "/BiRequestStream/requestBiStream"

	serverCheck     = "ServerCheckRequest"
	healthCheck     = "HealthCheckRequest"
	connectionSetup = "ConnectionSetupRequest"
	serviceList     = "ServiceListRequest"
	subscribe       = "SubscribeServiceRequest"
	notify          = "NotifySubscriberRequest"
	connectReset    = "ConnectResetRequest"
	request         = "Request"
	response        = "Response"
)

// push is a connection over which a server pushes the instances of services to which we subscribe.
type push struct {
	conn      *grpc.ClientConn
	address   string
	namespace string
	end       context.CancelFunc
	running   sync.WaitGroup

	// token is sent with each request. It may be changed between requests only.
	token string
	// subscribed are the services to which we subscribe, with the time of their last version. It belongs to the goroutine of the reader.
	subscribed map[listing]int64

	news   chan struct{} // has a token if pushed is not empty
	failed chan error    // has an error after the stream has ended
	mu     sync.Mutex
	pushed map[listing]version
}

// version is what the server says of a service.
type version struct {
	body string // JSON with the instances
	at   int64  // when the server made it
}

// openPush connects to the first server of an entry that speaks the protocol.
func openPush(ctx context.Context, e registries.Entry, a registries.Access, token string) (*push, error) {
	var errs []error
	for _, address := range e.Addresses {
		p, err := dial(ctx, address, e.NacosNamespaceID, a, token)
		if err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	return nil, errors.Join(errs...)
}

func dial(ctx context.Context, address, namespace string, a registries.Access, token string) (p *push, err error) {
	host, port, err := net.SplitHostPort(address)
	number, bad := strconv.Atoi(port)
	if err := errors.Join(err, bad); err != nil {
		return nil, err
	}
	secure := insecure.NewCredentials()
	if a.TLS != nil {
		secure = credentials.NewTLS(a.TLS)
	}
	at := net.JoinHostPort(host, strconv.Itoa(number+portOffset))
	conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(secure), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	p = &push{
		conn: conn, address: at, namespace: namespace, end: end, token: token, subscribed: map[listing]int64{},
		news: make(chan struct{}, 1), failed: make(chan error, 1), pushed: map[listing]version{},
	}
	if err := p.greet(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close ends the connection, and waits for the receiver.
func (p *push) close() {
	p.end()
	_ = p.conn.Close()
	p.running.Wait()
}

// greet opens the stream, and waits until the server knows the connection.
func (p *push) greet(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	if err := p.call(within, serverCheck, map[string]any{"module": "internal"}, nil); err != nil {
		return err
	}
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, streamMethod)
	if err != nil {
		return err
	}
	setup, err := p.payload(connectionSetup, map[string]any{
		"clientVersion": "Pilot:v2.0.0", "tenant": p.namespace, "labels": map[string]string{"source": "sdk", "module": "naming"}, "abilities": struct{}{},
	})
	if err != nil {
		return err
	}
	if err := stream.SendMsg(setup); err != nil {
		return err
	}
	p.running.Go(func() { p.failed <- p.receive(stream) })
	for {
		err := p.call(within, healthCheck, map[string]any{"module": "internal"}, nil)
		var refused *answerError
		if !errors.As(err, &refused) || refused.code != unregistered || !registries.Pause(within, registering) {
			return err
		}
	}
}

// payload makes a request.
func (p *push) payload(kind string, body map[string]any) (*payload, error) {
	headers := map[string]string{}
	if p.token != "" {
		headers["accessToken"] = p.token
	}
	body["headers"] = headers
	text, err := json.Marshal(body)
	return &payload{kind: kind, headers: headers, body: text}, err
}

// answerError is an answer that is no success.
type answerError struct {
	code    int
	message string
}

// Error implements error.
func (e *answerError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.code, e.message)
}

// call sends a request, and reads the answer into out.
func (p *push) call(ctx context.Context, kind string, body map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	in, err := p.payload(kind, body)
	if err != nil {
		return err
	}
	var got payload
	if err := p.conn.Invoke(ctx, callMethod, in, &got); err != nil {
		return fmt.Errorf("%s: %w", p.address, err)
	}
	return decodeAnswer(&got, out)
}

// decodeAnswer reads an answer. An answer that is no success is an error.
func decodeAnswer(got *payload, out any) error {
	var result struct {
		ResultCode int    `json:"resultCode"`
		ErrorCode  int    `json:"errorCode"`
		Message    string `json:"message"`
	}
	if err := json.Unmarshal(got.body, &result); err != nil {
		return fmt.Errorf("the %s cannot be read: %w", clip(got.kind), err)
	}
	if result.ResultCode != 200 {
		code := cmp.Or(result.ErrorCode, result.ResultCode)
		if code == forbidden {
			return &registries.StatusError{Status: code, Text: clip(result.Message)}
		}
		return &answerError{code, clip(result.Message)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(got.body, out); err != nil {
		return fmt.Errorf("the %s cannot be read: %w", clip(got.kind), err)
	}
	return nil
}

// maxQuote is how much of what a server sends is quoted.
const maxQuote = 200

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxQuote)], "?") }

// names lists the services of a group.
func (p *push) names(ctx context.Context, group string) (names []string, err error) {
	for page := 1; ; page++ {
		var got struct {
			Count        int      `json:"count"`
			ServiceNames []string `json:"serviceNames"`
		}
		err := p.call(ctx, serviceList, map[string]any{"module": "naming", "namespace": p.namespace, "groupName": group, "serviceName": "", "pageNo": page, "pageSize": pageSize}, &got)
		if err != nil {
			return nil, fmt.Errorf("the list of services of group %s: %w", group, err)
		}
		for _, name := range got.ServiceNames {
			names = append(names, strings.TrimPrefix(name, group+"@@"))
		}
		if len(got.ServiceNames) == 0 || len(names) >= got.Count {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
	}
}

// follow subscribes to a service, or ends that, and returns the instances as they are.
func (p *push) follow(ctx context.Context, l listing, on bool) (version, error) {
	var got struct {
		ServiceInfo json.RawMessage `json:"serviceInfo"`
	}
	err := p.call(ctx, subscribe, map[string]any{"module": "naming", "namespace": p.namespace, "serviceName": l.name, "groupName": l.group, "clusters": "", "subscribe": on}, &got)
	if err != nil {
		return version{}, fmt.Errorf("the instances of %s: %w", l.key(), err)
	}
	return versionOf(got.ServiceInfo), nil
}

// versionOf reads what a server says of a service.
func versionOf(info json.RawMessage) version {
	var times struct {
		LastRefTime int64 `json:"lastRefTime"`
	}
	if len(info) == 0 || json.Unmarshal(info, &times) != nil {
		times.LastRefTime = 0 // decode reports the mistake
	}
	if len(info) == 0 || string(info) == "null" {
		info = json.RawMessage("{}")
	}
	return version{string(info), times.LastRefTime}
}

// receive answers what the server sends, and keeps pushes for the reader, until the stream ends.
func (p *push) receive(stream grpc.ClientStream) error {
	for {
		var in payload
		if err := stream.RecvMsg(&in); err != nil {
			return fmt.Errorf("%s: the server closed the connection: %w", p.address, err)
		}
		if in.kind == connectReset {
			return fmt.Errorf("%s: the server asks for another connection", p.address)
		}
		reply, l, is := answerTo(&in)
		if is != nil {
			p.keep(l, *is)
		}
		if reply == nil {
			continue
		}
		if err := stream.SendMsg(reply); err != nil {
			return fmt.Errorf("%s: %w", p.address, err)
		}
	}
}

// answerTo returns the answer to a request of the server, and the service that it is about. A message that is no request has no answer.
func answerTo(in *payload) (reply *payload, of listing, is *version) {
	kind, ok := strings.CutSuffix(in.kind, request)
	if !ok {
		return nil, of, nil
	}
	var asked struct {
		RequestID   json.RawMessage `json:"requestId"`
		ServiceInfo json.RawMessage `json:"serviceInfo"`
	}
	var info struct {
		Name      string `json:"name"`
		GroupName string `json:"groupName"`
	}
	err := json.Unmarshal(in.body, &asked)
	if err == nil && in.kind == notify && json.Unmarshal(asked.ServiceInfo, &info) == nil {
		if group, name, both := strings.Cut(info.Name, "@@"); both {
			info.GroupName, info.Name = group, name
		}
		v := versionOf(asked.ServiceInfo)
		of, is = listing{info.GroupName, info.Name}, &v
	}
	if len(asked.RequestID) == 0 {
		asked.RequestID = json.RawMessage("null")
	}
	text, err := json.Marshal(map[string]any{"resultCode": 200, "errorCode": 0, "requestId": asked.RequestID})
	if err != nil {
		return nil, of, is
	}
	return &payload{kind: kind + response, body: text}, of, is
}

// keep keeps a push until the reader takes it. Of several ones for a service, the newest counts.
func (p *push) keep(l listing, is version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.pushed[l]; ok && was.at > is.at && is.at > 0 {
		return
	}
	p.pushed[l] = is
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// take returns the pushes that are newer than what the reader knows.
func (p *push) take() map[listing]version {
	p.mu.Lock()
	all := p.pushed
	p.pushed = map[listing]version{}
	p.mu.Unlock()
	for l, is := range all {
		was, ok := p.subscribed[l]
		if !ok || is.at > 0 && is.at < was {
			delete(all, l)
			continue
		}
		p.subscribed[l] = is.at
	}
	return all
}
