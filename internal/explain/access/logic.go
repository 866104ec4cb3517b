package access

// truth is the value of a condition. Unknown parts matter only if the others do not decide.
type truth uint8

const (
	no truth = iota
	yes
	maybe
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

func not(t truth) truth {
	switch t {
	case no:
		return yes
	case yes:
		return no
	}
	return maybe
}

// all is whether something is so for all elements of a list; it is for none.
func all[E any](list []E, holds func(E) truth) truth {
	result := yes
	for _, one := range list {
		switch holds(one) {
		case no:
			return no
		case maybe:
			result = maybe
		}
	}
	return result
}

// some is whether something is so for an element of a list.
func some[E any](list []E, holds func(E) truth) truth {
	return not(all(list, func(one E) truth { return not(holds(one)) }))
}

// unsure says that the result of a matcher is unknown, and why.
func (e *evaluation) unsure(why string) truth {
	e.why = append(e.why, why)
	return maybe
}

// because returns why the results of matchers were unknown since it was called last.
func (e *evaluation) because() string {
	why := "the answer is unknown"
	if len(e.why) > 0 {
		why = e.why[0]
	}
	e.why = nil
	return why
}
