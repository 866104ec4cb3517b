package mesh

import "strings"

// Session says how the requests of a session reach the endpoint that answered its first one. It is set by labels of a service; the zero value means that
// requests are balanced one by one.
type Session struct {
	// Cookie names the cookie that identifies the endpoint, and Path is the path of the cookie.
	Cookie, Path string
	// Header names the header that identifies the endpoint, where clients keep no cookies.
	Header string
}

// The labels of services with sessions. The value of the first one is the name of a cookie, and perhaps a colon and its path; the value of the second
// one is the name of a header.
const (
	SessionLabel       = "istio.io/persistent-session"
	SessionHeaderLabel = "istio.io/persistent-session-header"
)

// DrainingLabel is on a workload that is about to end: its endpoints take requests of existing sessions only.
const DrainingLabel = "istio.io/draining"

// SessionOf returns the session that the labels of a service describe. A cookie goes before a header.
func SessionOf(labels map[string]string) Session {
	if cookie := labels[SessionLabel]; cookie != "" {
		name, path, found := strings.Cut(cookie, ":")
		if !found {
			path = "/"
		}
		return Session{Cookie: name, Path: path}
	}
	return Session{Header: labels[SessionHeaderLabel]}
}
