// Package examples reads the examples of a document: the files that it shows, and the commands, with what they print. It
// never runs anything itself. There are two kinds of documents.
//
// Of a session (Parse), a block of yaml is a file, whose name is in a comment on its first line. A block of console is
// commands, each on a line that begins with "$ ", and on the next one if it ends with a backslash, and what they print. It
// has no other blocks, so that there is no example that nobody runs.
//
// Of instructions (Scripts), a block of sh is commands for a shell, all of one purpose. One that no test can run says what it
// needs, behind the language: "sh needs a registry". A block of yaml or text is no commands.
package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Document is the examples of a document.
type Document struct {
	// Files are the texts of the files, by name.
	Files map[string]string
	// Commands are in the order of the document.
	Commands []Command
}

// Command is a command for a shell.
type Command struct {
	// Line is where it is in the document, counted from 1.
	Line int
	// Text is the command.
	Text string
	// Prints is what it prints, of both its outputs.
	Prints string
}

const (
	fence  = "```"
	prompt = "$ "
)

// Parse is the examples in the text of a document. A block that is no example is an error, and so is a file that no command
// names.
func Parse(text string) (Document, error) {
	document := Document{Files: map[string]string{}}
	blocks, err := blocksOf(text)
	if err != nil {
		return document, err
	}
	for _, block := range blocks {
		if err := document.add(block); err != nil {
			return document, err
		}
	}
	for name := range document.Files {
		if !slices.ContainsFunc(document.Commands, func(c Command) bool { return c.names(name) }) {
			return document, fmt.Errorf("no command names %s", name)
		}
	}
	return document, nil
}

// block is a fenced block.
type block struct {
	info  string // what is behind the opening fence
	line  int    // of the first line in it, counted from 1
	lines []string
}

func blocksOf(text string) ([]block, error) {
	var blocks []block
	lines := strings.Split(text, "\n")
	for start := 0; start < len(lines); start++ {
		info, isFence := strings.CutPrefix(lines[start], fence)
		if !isFence {
			if strings.HasPrefix(strings.TrimSpace(lines[start]), fence) {
				return nil, fmt.Errorf("line %d: the block is indented, so that nobody runs it", start+1)
			}
			continue
		}
		length := slices.Index(lines[start+1:], fence)
		if length < 0 {
			return nil, fmt.Errorf("line %d: the block does not end", start+1)
		}
		blocks = append(blocks, block{info: info, line: start + 2, lines: lines[start+1 : start+1+length]})
		start += length + 1
	}
	return blocks, nil
}

// names tells whether c is about a file, or about the directory that it is in.
func (c Command) names(file string) bool {
	directory := filepath.Dir(file) + "/"
	return slices.ContainsFunc(strings.Fields(c.Text), func(word string) bool { return word == file || word == directory })
}

func (d *Document) add(b block) error {
	switch b.info {
	case "yaml":
		name, ok := "", false
		if len(b.lines) > 0 {
			name, ok = strings.CutPrefix(b.lines[0], "# ")
		}
		if !ok || !strings.HasSuffix(name, ".yaml") || !filepath.IsLocal(name) {
			return fmt.Errorf("line %d: the first line of yaml is not a comment with the name of a file, such as # policy.yaml", b.line)
		}
		if _, taken := d.Files[name]; taken {
			return fmt.Errorf("line %d: there are two files %s", b.line, name)
		}
		d.Files[name] = strings.Join(b.lines, "\n") + "\n"
		return nil
	case "console":
		return d.addCommands(b)
	default:
		return fmt.Errorf("line %d: a block of %q is neither yaml nor console, and is not run", b.line, b.info)
	}
}

func (d *Document) addCommands(b block) error {
	continued := false
	for i, text := range b.lines {
		command, isCommand := strings.CutPrefix(text, prompt)
		switch {
		case isCommand:
			d.Commands = append(d.Commands, Command{Line: b.line + i, Text: command})
		case i == 0:
			return fmt.Errorf("line %d: console does not begin with a command", b.line)
		case continued:
			d.Commands[len(d.Commands)-1].Text += "\n" + text
		default:
			d.Commands[len(d.Commands)-1].Prints += text + "\n"
		}
		continued = (isCommand || continued) && strings.HasSuffix(text, "\\")
	}
	return nil
}

// Write writes the files into a directory.
func (d Document) Write(directory string) error {
	for name, text := range d.Files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Visible is what is printed without how columns are aligned, which depends on what else is in them, and without empty
// lines.
func Visible(printed string) string {
	var lines []string
	for line := range strings.Lines(printed) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}
