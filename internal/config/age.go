package config

import (
	"fmt"
	"strings"
	"time"
)

// age is a duration that may be unlimited (Forever), for use as a flag.
type age time.Duration

const endless = "infinity"

func (a *age) String() string {
	if time.Duration(*a) == forever {
		return endless
	}
	return time.Duration(*a).String()
}

// Set parses a duration or "infinity".
func (a *age) Set(text string) error {
	switch strings.ToLower(text) {
	case endless, "inf":
		*a = age(forever)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is neither a duration such as 30m nor %s", text, endless)
	}
	*a = age(d)
	return nil
}

// Type returns the name of the value in the help.
func (*age) Type() string { return "duration" }
