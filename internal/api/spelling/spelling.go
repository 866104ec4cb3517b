// Package spelling says how far a misspelt word is from another one.
//
// It is pure and starts no goroutines. A call takes bounded time, whatever the words.
package spelling

import "strings"

// longest is the length of the longest word that is compared, in bytes.
const longest = 64

// Distance is how many bytes have to be added, dropped or changed to make one word the other. It is bound if that many or more,
// or if a word is longer than any word a person types.
func Distance(a, b string, bound int) int {
	if len(a) > longest || len(b) > longest || max(len(a), len(b))-min(len(a), len(b)) >= bound {
		return bound
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(above+1, row[j]+1, change)
			diagonal = above
		}
	}
	return min(row[len(b)], bound)
}

// Closest returns the name that is most similar to a misspelt one, whatever its case; "" if none is. The first of equally similar names
// counts. A longer word may differ more, but a word of two bytes or less must differ by one byte only.
func Closest(wrong string, names []string) string {
	best, bound := "", max(1, len(wrong)/3)+1
	for _, name := range names {
		if d := Distance(strings.ToLower(wrong), strings.ToLower(name), bound); d < bound {
			best, bound = name, d
		}
	}
	return best
}

// Meant is Closest, if no other name is as similar: it guesses only where there is nothing to choose.
func Meant(wrong string, names []string) string {
	best := Closest(wrong, names)
	if best == "" {
		return ""
	}
	least := Distance(strings.ToLower(wrong), strings.ToLower(best), longest+1)
	for _, name := range names {
		if name != best && Distance(strings.ToLower(wrong), strings.ToLower(name), least+1) == least {
			return ""
		}
	}
	return best
}
