package cfg

import "slices"

// Nearest returns the key that is spelled most like a wrong one, "" if none is close: at most a third
// of its letters differ. Of equally near ones the first by name.
func Nearest(wrong string, keys []string) string {
	best, at := "", len(wrong)/3+1
	for _, key := range slices.Sorted(slices.Values(keys)) {
		if d := distance(wrong, key); d < at {
			best, at = key, d
		}
	}
	return best
}

// distance is how many letters to insert, remove or replace to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
