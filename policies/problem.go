package policies

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stageset/stageset/policies/internal/celenv"
)

// Problem is one thing that is wrong with a policy.
type Problem struct {
	// Policy is the name of the policy.
	Policy string
	// Field is the path of the field that is wrong, such as spec.validations[sources].expression.
	Field string
	// Line and Column are where in an expression, counted from 1; zero if it is the field as a whole.
	Line, Column int
	// Message says what is wrong, on one line.
	Message string
}

// String is on one line.
func (p Problem) String() string {
	at := ""
	if p.Line > 0 {
		at = fmt.Sprintf("line %d, column %d: ", p.Line, p.Column)
	}
	return fmt.Sprintf("policy %s: %s: %s%s", p.Policy, p.Field, at, p.Message)
}

// Problems is everything that is wrong with some policies.
type Problems []Problem

// Error has a problem in each line.
func (p Problems) Error() string {
	lines := make([]string, 0, len(p))
	for _, problem := range p {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n")
}

// orNil keeps an empty list from becoming an error that is not nil.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// newProblems are the problems that err stands for.
func newProblems(policy, field string, err error) Problems {
	var issues celenv.Issues
	if !errors.As(err, &issues) {
		return Problems{{Policy: policy, Field: field, Message: err.Error()}}
	}
	problems := make(Problems, 0, len(issues))
	for _, issue := range issues {
		problems = append(problems, Problem{policy, field, issue.Line, issue.Column, issue.Message})
	}
	return problems
}
