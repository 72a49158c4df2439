package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// The layout, in characters.
const (
	timeColumn = 68 // where the time of a step ends
	lineWidth  = 108
	indent     = "    "
)

// screen is what a newcomer reads: numbered steps, each with how long it took, and what belongs to it below. It must not
// be used by two goroutines at once.
type screen struct {
	out   io.Writer
	clock clock.PassiveClock

	number int
	began  time.Time // the present step
	open   bool      // whether its line has no end yet
	column int       // where that line is, in characters
	below  bool      // whether something was written below it
}

// begin starts the line of the next step.
func (s *screen) begin(title string) {
	if s.below {
		s.blank()
	}
	s.below = false
	s.number++
	s.title(fmt.Sprintf("%2d. %s", s.number, title))
}

func (s *screen) title(text string) {
	fmt.Fprint(s.out, text)
	s.began, s.open, s.column = s.clock.Now(), true, len(text)
}

// done ends the line of the step, unless something was written below it.
func (s *screen) done(detail string) {
	if s.open {
		s.close(fmt.Sprintf("%*s   %s", timeColumn-s.column, elapsed(s.clock.Since(s.began)), detail))
	}
}

// failed ends the step with what went wrong, where to read more (a file, or nothing) and how that ends, and what to do.
func (s *screen) failed(problem, log string, end []string, hint string) {
	if s.open {
		s.close(": failed after " + elapsed(s.clock.Since(s.began)))
	}
	s.blank()
	s.labelled("Problem", problem)
	if log != "" {
		s.labelled("Log", log)
	}
	for _, line := range end {
		s.line("%12s| %s", "", shorten(line, lineWidth-len(indent)-14))
	}
	s.labelled("What to do", hint)
}

// labelled writes text beside a label.
func (s *screen) labelled(label, text string) {
	const width = lineWidth - len(indent) - 12
	for _, line := range wrap(text, width, width) {
		s.line("%-12s%s", label, line)
		label = ""
	}
}

// line writes one indented line.
func (s *screen) line(format string, args ...any) {
	s.close("")
	s.below = true
	fmt.Fprintln(s.out, strings.TrimRight(indent+fmt.Sprintf(format, args...), " "))
}

// text writes a paragraph, broken into lines.
func (s *screen) text(format string, args ...any) {
	const width = lineWidth - len(indent)
	for _, line := range wrap(fmt.Sprintf(format, args...), width, width) {
		s.line("%s", line)
	}
}

// blank writes an empty line.
func (s *screen) blank() {
	s.close("")
	fmt.Fprintln(s.out)
}

// transcript writes a command and what it printed, with long lines broken.
func (s *screen) transcript(command, output string) {
	s.line("$ %s", command)
	const width = lineWidth - len(indent)
	for _, line := range wrap(strings.TrimSpace(output), width, width) {
		s.line("%s", line)
	}
}

// event writes what happened to a StageSet, in columns. What does not fit beside them goes below.
func (s *screen) event(at string, change change) {
	prefix := fmt.Sprintf("%8s  %-18s %-10s ", at, change.subject, change.state)
	const below, width = "          ", lineWidth - len(indent)
	for _, line := range wrap(change.text, width-len(prefix), width-len(below)) {
		s.line("%s%s", prefix, line)
		prefix = below
	}
}

// heading writes a line that begins something new, without a number.
func (s *screen) heading(text string) {
	s.blank()
	fmt.Fprintln(s.out, text)
	s.blank()
}

// ending begins the line of what is done at last.
func (s *screen) ending() {
	s.blank()
	s.title("Stop everything, and leave no process and no port")
}

// close ends the line of the step, if it has no end yet.
func (s *screen) close(rest string) {
	if s.open {
		s.open = false
		fmt.Fprintln(s.out, strings.TrimRight(rest, " "))
	}
}

// elapsed is a duration for people.
func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// wrap breaks text at spaces into lines of at most so many characters, longer words excepted: the first one, and the rest.
// There is at least one line.
func wrap(text string, first, rest int) []string {
	var lines []string
	width := first
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			switch {
			case line == "":
				line = word
			case len(line)+1+len(word) > width:
				lines, line, width = append(lines, line), word, rest
			default:
				line += " " + word
			}
		}
		lines, width = append(lines, line), rest
	}
	return lines
}

// shorten cuts a line to at most so many characters, and shows that it did.
func shorten(line string, width int) string {
	characters := []rune(strings.ReplaceAll(line, "\t", "  "))
	if len(characters) <= width {
		return string(characters)
	}
	return string(characters[:width-1]) + "…"
}
