// Package spelling says how far a misspelt word is from another one.
//
// It is pure and starts no goroutines. A call takes bounded time, whatever the words.
package spelling

// longest is the length of the longest word that is compared, in bytes.
const longest = 64

// Distance is how many bytes have to be added, dropped or changed to make one word the other. It is bound if that many or more,
// or if a word is longer than any that somebody has typed.
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
