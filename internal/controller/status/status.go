// Package status reports to the users of a cluster, in the statuses of objects, whether the control plane accepts an object, which
// parts it ignores, and on how many of the proxies that need it the object is in force.
//
// One replica writes statuses: the leader. A Writer follows the versions of the objects in force and their problems as the graph
// computes them, so it looks at an object only when one of them changes, and again while proxies have not acknowledged it. A status
// is written when it differs from the one that the object has, so a writer that starts writes only statuses that are out of date.
//
// Invariants: A status is written only for the generation that it is about. Writing a status changes nothing that the control plane
// reads. Conditions of others stay as they are.
//
// Writer.Run is the only goroutine.
package status

import (
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/live"
)

// Status is the content that the control plane writes to the status of an object.
type Status struct {
	Conditions []Condition
	Messages   []Message
}

// Condition is one entry of status.conditions.
type Condition struct {
	Type, Reason, Message string
	True                  bool
}

// Message is one entry of status.validationMessages.
type Message struct {
	Level string // ERROR, WARNING or INFO
	Text  string
}

// The types of the conditions that the control plane writes.
const (
	// Accepted is true if the present version of the object is in force, and false if it is refused.
	Accepted = "Accepted"
	// effective is true if everything in the object has an effect, and false if another object goes before it (reason Conflict), or a part of
	// it is ignored.
	effective = "Effective"
	// Live is true if every connected proxy that needs the object has acknowledged its present version.
	Live = "Live"
)

// Types are the types of the conditions that the control plane writes.
func Types() []string { return []string{Accepted, effective, Live} }

const (
	// maxMessages is the largest number of problems that a status lists.
	maxMessages = 20
	// maxNamed is the largest number of proxies that a status names.
	maxNamed = 5
)

// statusOf returns the status of an object with its problems, as far as it has come.
func statusOf(problems []api.Problem, now live.Status) Status {
	var s Status
	var refused, ignored []string
	trouble := "HasProblems"
	for i, p := range problems {
		text := describe(p)
		switch {
		case p.Refuses():
			refused = append(refused, text)
		case p.Severity == api.Info: // a remark: everything has an effect
		default:
			ignored = append(ignored, text)
			if p.Conflict {
				trouble = "Conflict"
			}
		}
		if i < maxMessages {
			s.Messages = append(s.Messages, Message{strings.ToUpper(p.Severity.String()), text})
		}
	}
	s.Conditions = []Condition{
		condition(Accepted, refused, "Accepted", "the control plane uses this version", "Refused", "the last good version stays in force, if there is one: "),
		condition(effective, ignored, "NothingIgnored", "everything in it has an effect", trouble, ""),
		liveness(now),
	}
	if len(refused) > 0 {
		s.Conditions[2] = Condition{Live, "Refused", "this version is not in force", false}
	}
	return s
}

func describe(p api.Problem) string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// condition returns a condition that is true if there are no problems.
func condition(of string, problems []string, good, goodMessage, bad, badMessage string) Condition {
	if len(problems) == 0 {
		return Condition{of, good, goodMessage, true}
	}
	more := ""
	if len(problems) > maxMessages {
		more = fmt.Sprintf("; and %d more", len(problems)-maxMessages)
		problems = problems[:maxMessages]
	}
	return Condition{of, bad, badMessage + strings.Join(problems, "; ") + more, false}
}

func liveness(now live.Status) Condition {
	switch {
	case now.Proxies == 0 && now.NotAsked > 0:
		return Condition{Live, "NotNeeded", fmt.Sprintf("no connected proxy has what it is about; %d sidecars with hosts on demand get it with the first request", now.NotAsked), true}
	case now.Proxies == 0:
		return Condition{Live, "NotNeeded", "no connected proxy needs it", true}
	case now.Done():
		return Condition{Live, "Acknowledged", fmt.Sprintf("acknowledged by %d of %d proxies that need it", now.Live, now.Proxies), true}
	}
	var names []string
	reason := "Pending"
	for _, b := range now.Behind {
		if b.Rejected != "" {
			reason = "Rejected"
			names = append(names, fmt.Sprintf("%s (rejects it: %s)", b.Proxy, b.Rejected))
		} else {
			names = append(names, b.Proxy)
		}
	}
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return Condition{Live, reason, fmt.Sprintf("acknowledged by %d of %d proxies that need it; not by %s", now.Live, now.Proxies, strings.Join(names, ", ")), false}
}
