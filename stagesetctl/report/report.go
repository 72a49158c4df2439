// Package report writes the outcome of tests, for people, for CI systems and for programs. What it writes depends on the
// outcome alone: no times, no order of maps. It never decides what an outcome is.
package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Suite is the tests of one policy, or the policies on one object.
type Suite struct {
	// Name is the policy, or the object.
	Name string `json:"name"`
	// Path and Line are where it is written.
	Path string `json:"path"`
	Line int    `json:"line"`
	// Object is the object with what the policies filled in; nil if the suite is the tests of a policy.
	Object map[string]any `json:"object,omitempty"`
	// Cases are in the order in which they were run.
	Cases []Case `json:"cases"`
}

// Case is one test, or one policy on an object.
type Case struct {
	// Name is the test, or the policy.
	Name string `json:"name"`
	// Line is where the test is written; zero if it is not.
	Line int `json:"line,omitempty"`
	// Failures say what is wrong. There are none if it passed.
	Failures []string `json:"failures,omitempty"`
	// Notes are what is worth knowing about a case, passed or not.
	Notes []string `json:"notes,omitempty"`
	// Violations are what the policy says about the object; a test of a policy has none.
	Violations []Violation `json:"violations,omitempty"`
}

// Violation is a rule that an object does not keep, and what that leads to: Deny, Warn or Audit.
type Violation struct {
	Action  string `json:"action"`
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

// failed counts the cases that failed.
func (s Suite) failed() int {
	count := 0
	for _, c := range s.Cases {
		if len(c.Failures) > 0 {
			count++
		}
	}
	return count
}

// Failed tells whether any case of suites failed.
func Failed(suites []Suite) bool {
	for _, suite := range suites {
		if suite.failed() > 0 {
			return true
		}
	}
	return false
}

// Text writes suites for people: a line for each, and every failure. With verbose there is a line for each case as well.
func Text(w io.Writer, suites []Suite, verbose bool) error {
	var text strings.Builder
	total, failed := 0, 0
	for _, suite := range suites {
		total, failed = total+len(suite.Cases), failed+suite.failed()
		state := "ok  "
		switch {
		case suite.failed() > 0:
			state = "FAIL"
		case len(suite.Cases) == 0:
			state = "none"
		}
		fmt.Fprintf(&text, "%s  %s  %s:%d  (%s)\n", state, suite.Name, suite.Path, suite.Line, count(len(suite.Cases), "case"))
		for _, c := range suite.Cases {
			writeCase(&text, suite, c, verbose)
		}
	}
	fmt.Fprintf(&text, "%s, %s, %d failed\n", count(len(suites), "suite"), count(total, "case"), failed)
	_, err := io.WriteString(w, text.String())
	return err
}

func writeCase(text *strings.Builder, in Suite, c Case, verbose bool) {
	at := ""
	if c.Line > 0 {
		at = fmt.Sprintf("  %s:%d", in.Path, c.Line)
	}
	switch {
	case len(c.Failures) > 0:
		fmt.Fprintf(text, "      FAIL  %s%s\n", c.Name, at)
	case verbose || len(c.Notes) > 0:
		fmt.Fprintf(text, "      ok    %s%s\n", c.Name, at)
	}
	for _, line := range append(c.Failures[:len(c.Failures):len(c.Failures)], c.Notes...) {
		fmt.Fprintf(text, "            %s\n", strings.ReplaceAll(strings.TrimRight(line, "\n"), "\n", "\n            "))
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// JSON writes suites for programs.
func JSON(w io.Writer, suites []Suite) error {
	if suites == nil {
		suites = []Suite{}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(suites)
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	File     string      `xml:"file,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Line    int           `xml:"line,attr,omitempty"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes suites as JUnit XML, which CI systems show.
func JUnit(w io.Writer, suites []Suite) error {
	var all junitSuites
	for _, suite := range suites {
		converted := junitSuite{Name: suite.Name, File: suite.Path, Tests: len(suite.Cases), Failures: suite.failed()}
		for _, c := range suite.Cases {
			one := junitCase{Class: suite.Name, Name: c.Name, File: suite.Path, Line: c.Line, Output: strings.Join(c.Notes, "\n")}
			if len(c.Failures) > 0 {
				text := strings.Join(c.Failures, "\n")
				// What lists of failures show is the message, and it is one line.
				one.Failure = &junitFailure{Message: strings.Join(strings.Fields(text), " "), Text: text}
			}
			converted.Cases = append(converted.Cases, one)
		}
		all.Suites = append(all.Suites, converted)
		all.Tests, all.Failures = all.Tests+converted.Tests, all.Failures+converted.Failures
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
