package topic

// windows counts the topics by their duplicate window, ms; those without one of their own are not in it.
type windows map[int64]int

// change notes that a topic has become another one; nil is none.
func (w windows) change(from, to *Definition) {
	if from != nil && from.Limits.DuplicatesMS > 0 {
		if w[from.Limits.DuplicatesMS]--; w[from.Limits.DuplicatesMS] == 0 {
			delete(w, from.Limits.DuplicatesMS)
		}
	}
	if to != nil && to.Limits.DuplicatesMS > 0 {
		w[to.Limits.DuplicatesMS]++
	}
}

// LongestWindow is the longest duplicate window that a topic states, ms, 0 if none does.
func (t *Table) LongestWindow() int64 {
	longest := int64(0)
	for ms := range t.windows {
		longest = max(longest, ms)
	}
	return longest
}
