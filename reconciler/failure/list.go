package failure

import "fmt"

// AndMore is texts with one more, which counts those that a message leaves out so that it stays readable: "and 3 more". It is
// texts alone if nothing is left out (left ≤ 0).
func AndMore(texts []string, left int) []string {
	if left <= 0 {
		return texts
	}
	return append(texts[:len(texts):len(texts)], fmt.Sprintf("and %d more", left))
}
