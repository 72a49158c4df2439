package examples

import (
	"fmt"
	"slices"
	"strings"
)

// Script is a block of commands for a shell.
type Script struct {
	// Line is where the first command is in the document, counted from 1.
	Line int
	// Text is the commands.
	Text string
	// Needs is what no test has and the commands need, such as a registry. It is empty if a test runs them.
	Needs string
}

// noScripts are the languages of blocks without commands.
var noScripts = []string{"yaml", "text", "gotemplate"}

// Scripts are the scripts in the text of a document, in its order. A block that does not say what it is is an error.
func Scripts(text string) ([]Script, error) {
	blocks, err := blocksOf(text)
	if err != nil {
		return nil, err
	}
	var scripts []Script
	for _, block := range blocks {
		if slices.Contains(noScripts, block.info) {
			continue
		}
		language, needs, marked := strings.Cut(block.info, " needs ")
		if language != "sh" || marked && needs == "" {
			return nil, fmt.Errorf("line %d: a block of %q is none of %s, sh (which a test runs), and sh needs SOMETHING "+
				"(which none can)", block.line, block.info, strings.Join(noScripts, ", "))
		}
		scripts = append(scripts, Script{Line: block.line, Text: strings.Join(block.lines, "\n") + "\n", Needs: needs})
	}
	return scripts, nil
}

// Targets are what a script makes that does nothing else than to make targets of the Makefile; empty of any other.
func (s Script) Targets() []string {
	var targets []string
	for line := range strings.Lines(s.Text) {
		command, _, _ := strings.Cut(line, "#")
		words := strings.Fields(command)
		if len(words) < 2 || words[0] != "make" {
			return nil
		}
		targets = append(targets, words[1:]...)
	}
	return targets
}

// Runnable are the scripts that a test is to run: all but those that need something, and those that make targets, as CI does.
func Runnable(scripts []Script) []Script {
	return slices.DeleteFunc(slices.Clone(scripts), func(s Script) bool { return s.Needs != "" || len(s.Targets()) > 0 })
}
