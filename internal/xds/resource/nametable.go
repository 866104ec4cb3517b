package resource

// Whole joins tables of one name each into the one table that clients get that ask for everything without naming it. Istio's agents do
// that, and read the first resource of a response only. The table has no name.
func Whole(tables []*Resource) *Resource {
	n := 0
	for _, r := range tables {
		n += len(r.head) - r.body
	}
	joined := make([]byte, 0, n)
	for _, r := range tables {
		joined = append(joined, r.head[r.body:]...)
	}
	return Encoded(NameTable, "", joined)
}
