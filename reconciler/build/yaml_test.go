package build

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// parsed is what a file says, as JSON, or the error.
func parsed(file, text string) ([]string, string) {
	documents, err := parser{objects: objectBudget()}.parse(file, []byte(text))
	if err != nil {
		return nil, err.Error()
	}
	var values []string
	for _, d := range documents {
		raw, err := json.Marshal(d.value)
		if err != nil {
			return nil, err.Error()
		}
		values = append(values, string(raw))
	}
	return values, ""
}

// T-83, T-88: the loader's reading of what other loaders read differently, or not at all.
func TestParse(t *testing.T) {
	cases := map[string]struct {
		file string // x.yaml if empty
		text string
		want []string
	}{
		"anchor and alias":           {text: "a: &x {k: v}\nb: *x\n", want: []string{`{"a":{"k":"v"},"b":{"k":"v"}}`}},
		"merge key":                  {text: "base: &b {x: 1, y: 2}\nc:\n  <<: *b\n  y: 3\n", want: []string{`{"base":{"x":1,"y":2},"c":{"x":1,"y":3}}`}},
		"merge key after the field":  {text: "c:\n  y: 3\n  <<: {x: 1, y: 2}\n", want: []string{`{"c":{"x":1,"y":3}}`}},
		"merge of two, first wins":   {text: "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n", want: []string{`{"a":{"x":1},"b":{"x":2,"z":3},"c":{"x":1,"z":3}}`}},
		"merge key as a text":        {text: `{"<<": 1}`, want: []string{`{"\u003c\u003c":1}`}},
		"numeric key":                {text: "1: a\n0x10: b\n1.50: c\n", want: []string{`{"0x10":"b","1":"a","1.50":"c"}`}},
		"boolean-like key":           {text: "yes: a\ntrue: b\non: c\n", want: []string{`{"on":"c","true":"b","yes":"a"}`}},
		"large integer":              {text: "n: 9007199254740993\nm: -9223372036854775808\n", want: []string{`{"m":-9223372036854775808,"n":9007199254740993}`}},
		"octal, hex, underscores":    {text: "a: 0644\nb: 0o644\nc: 0x1F\nd: 1_000\ne: 08\n", want: []string{`{"a":420,"b":420,"c":31,"d":1000,"e":8}`}},
		"floats":                     {text: "a: 1.5\nb: 1e3\nc: -.5\n", want: []string{`{"a":1.5,"b":1000,"c":-0.5}`}},
		"commit that is a number":    {text: "tag: 553640e6\nquoted: \"553640e6\"\n", want: []string{`{"quoted":"553640e6","tag":553640000000}`}},
		"quoted numbers stay text":   {text: "a: \"004\"\nb: '0999991'\nc: !!str 12\n", want: []string{`{"a":"004","b":"0999991","c":"12"}`}},
		"dates stay text":            {text: "d: 2001-12-14\nt: 2001-12-14T21:59:43.10-05:00\n", want: []string{`{"d":"2001-12-14","t":"2001-12-14T21:59:43.10-05:00"}`}},
		"yes and no are text":        {text: "a: yes\nb: off\nc: True\nd: ~\ne:\n", want: []string{`{"a":"yes","b":"off","c":true,"d":null,"e":null}`}},
		"only comments":              {text: "# nothing\n# here\n"},
		"empty documents":            {text: "---\n---\n\n---\na: 1\n---\n# end\n---\n", want: []string{`{"a":1}`}},
		"empty file":                 {text: ""},
		"document on the marker":     {text: "--- {a: 1}\n--- # b\nb: 2\n", want: []string{`{"a":1}`, `{"b":2}`}},
		"marker within block scalar": {text: "a: |\n  x\n  ---\n  y\nb: 1\n", want: []string{`{"a":"x\n---\ny\n","b":1}`}},
		"four dashes are no marker":  {text: "a: |\n  x\n", want: []string{`{"a":"x\n"}`}},
		"end marker":                 {text: "a: 1\n...\n---\nb: 2\n...\n", want: []string{`{"a":1}`, `{"b":2}`}},
		"directive":                  {text: "%YAML 1.1\n---\na: 1\n---\nb: 2\n", want: []string{`{"a":1}`, `{"b":2}`}},
		"byte order mark":            {text: "\uFEFFa: 1\n", want: []string{`{"a":1}`}},
		"CRLF":                       {text: "a: 1\r\nb: |\r\n  x\r\n  y\r\n---\r\nc: 2\r\n", want: []string{`{"a":1,"b":"x\ny\n"}`, `{"c":2}`}},
		"folded and literal":         {text: "f: >-\n  a\n  b\n\n  c\nl: |\n  \\.(?:a|b)\n  end\\\n", want: []string{`{"f":"a b\nc","l":"\\.(?:a|b)\nend\\\n"}`}},
		"next line character":        {text: "a: \"x\\Ny\"\n", want: []string{"{\"a\":\"x\u0085y\"}"}},
		"JSON in a YAML file":        {text: "{\n\t\"a\": [1, 2.0, \"x\"]\n}\n", want: []string{`{"a":[1,2,"x"]}`}},
		"JSON":                       {file: "x.json", text: "{\n\t\"a\": [1, 2.5, 1e3, null, true, \"\\ud83d\\ude00\"]}\n{\"b\": 9007199254740993}", want: []string{`{"a":[1,2.5,1000,null,true,"😀"]}`, `{"b":9007199254740993}`}},
		"JSON, empty":                {file: "x.json", text: " \n"},
		"JSON, byte order mark":      {file: "x.json", text: "\uFEFF{}", want: []string{`{}`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.file == "" {
				c.file = "x.yaml"
			}
			got, text := parsed(c.file, c.text)
			if text != "" {
				t.Fatal(text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
		})
	}
}

// T-83: what is refused is refused with file and line.
func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		file string // x.yaml if empty
		text string
		want string
	}{
		"duplicate key":              {text: "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", want: `x.yaml:5: key "c" appears twice, first at line 3`},
		"duplicate in document two":  {text: "a: 1\n---\nb: 1\nb: 2\n", want: `x.yaml:4: key "b" appears twice, first at line 3`},
		"duplicate number":           {text: "1: a\n\"1\": b\n", want: `x.yaml:2: key "1" appears twice, first at line 1`},
		"two merge keys":             {text: "a: {<<: {x: 1}, <<: {y: 1}}\n", want: `x.yaml:1: key "<<" appears twice, first at line 1`},
		"merge of a text":            {text: "a:\n  <<: x\n", want: `x.yaml:2: the value of "<<" is neither a mapping nor a list of mappings`},
		"tab":                        {text: "a:\n\tb: 1\n", want: "x.yaml:2: invalid YAML: found character that cannot start any token (the line is indented with a tab; YAML wants spaces)"},
		"tab in document two":        {text: "x: 1\n---\na:\n\tb: 1\n", want: "x.yaml:4: invalid YAML: found character that cannot start any token (the line is indented with a tab; YAML wants spaces)"},
		"reference within braces":    {text: "a: 1\nb: {c: ${x}}\n", want: "x.yaml:2: invalid YAML: did not find expected ',' or '}' (within braces, quote what has a ${ in it)"},
		"bad indentation":            {text: "a: 1\n b: 2\n", want: "x.yaml:2: invalid YAML: mapping values are not allowed in this context"},
		"unclosed list":              {text: "a: 1\nb:\n- x\n c: 2\n", want: "x.yaml:4: invalid YAML: mapping values are not allowed in this context"},
		"unclosed mapping":           {text: "x: 1\n---\na:\n  b: 1\n c: 2\n", want: "x.yaml:5: invalid YAML: did not find expected key"},
		"on the first line":          {text: "a: b: c\n", want: "x.yaml:1: invalid YAML: mapping values are not allowed in this context"},
		"after a flow of many lines": {text: "a: {\n  b: 1,\n  c: 2\n}\nd: [x,\n y]\ne: [1, 2}\nf: 1\n", want: "x.yaml:7: invalid YAML: did not find expected ',' or ']'"},
		"unclosed quote":             {text: "a: 1\nb: \"x\n", want: "x.yaml:2: invalid YAML: found unexpected end of stream"},
		"unknown anchor":             {text: "a: 1\nb: *nope\n", want: "x.yaml:2: invalid YAML: unknown anchor (an unquoted * begins the name of one)"},
		"anchor in itself":           {text: "a: &a\n- *a\n", want: `x.yaml:1: anchor "a" contains itself`},
		"anchor in itself, mapping":  {text: "a: &a\n  b: {c: *a}\n", want: `x.yaml:1: anchor "a" contains itself`},
		"control character":          {text: "a: 1\nb: x\u0093y\n", want: "x.yaml:2: holds the control character U+0093"},
		"bell":                       {text: "a: \"\a\"\n", want: "x.yaml:1: holds the control character U+0007"},
		"Latin-1":                    {text: "a: 1\nb: \x93quoted\x94\n", want: "x.yaml:2: byte 0x93 is not UTF-8"},
		"UTF-16, little endian":      {text: "\xFF\xFEa\x00:\x00", want: "x.yaml: is encoded in UTF-16; manifests are UTF-8"},
		"UTF-16, big endian":         {text: "\xFE\xFF\x00a\x00:", want: "x.yaml: is encoded in UTF-16; manifests are UTF-8"},
		"UTF-16, no mark":            {text: "a\x00:\x00", want: "x.yaml: is encoded in UTF-16; manifests are UTF-8"},
		"UTF-32":                     {text: "\xFF\xFE\x00\x00a\x00\x00\x00", want: "x.yaml: is encoded in UTF-32; manifests are UTF-8"},
		"integer of 65 bits":         {text: "a: 18446744073709551615\n", want: "x.yaml:1: the integer does not fit into 64 bits; quote it if it is a text"},
		"integer of 100 bits":        {text: "a: 99999999999999999999999999\n", want: "x.yaml:1: the integer does not fit into 64 bits; quote it if it is a text"},
		"infinity":                   {text: "a: .inf\n", want: "x.yaml:1: this is not a number that JSON can express"},
		"not a number":               {text: "a: .nan\n", want: "x.yaml:1: this is not a number that JSON can express"},
		"null key":                   {text: "~: a\n", want: "x.yaml:1: a key is null"},
		"list as key":                {text: "? [a]\n: b\n", want: "x.yaml:1: a key is not a scalar"},
		"binary":                     {text: "a: !!binary aGk=\n", want: "x.yaml:1: tag !!binary is not supported"},
		"tag of an application":      {text: "a: !Ref b\n", want: "x.yaml:1: tag !Ref is not supported"},
		"tag on a mapping":           {text: "a: !Sub {b: 1}\n", want: "x.yaml:1: tag !Sub is not supported"},
		"tag on a list":              {text: "a: !Join [b]\n", want: "x.yaml:1: tag !Join is not supported"},
		"tag that lies":              {text: "a: !!int x\n", want: "x.yaml:1: this is not an integer"},
		"too deep":                   {text: strings.Repeat("[", 1100) + strings.Repeat("]", 1100), want: "x.yaml:1: values are nested more than 1000 deep"},
		"JSON, duplicate key":        {file: "x.json", text: "{\"a\": 1,\n\"b\": 1,\n\"a\": 2}", want: `x.json:3: key "a" appears twice`},
		"JSON, comma":                {file: "x.json", text: "{\"a\": 1,\n}", want: "x.json:2: invalid JSON: invalid character '}'"},
		"JSON, cut off":              {file: "x.json", text: "{\"a\": [1,\n", want: "x.json:2: invalid JSON: unexpected end of file"},
		"JSON, large integer":        {file: "x.json", text: "[\n18446744073709551615]", want: "x.json:2: the integer does not fit into 64 bits; quote it if it is a text"},
		"JSON, float out of range":   {file: "x.json", text: "1e999", want: "x.json:1: this is not a number that can be expressed"},
		"JSON, too deep":             {file: "x.json", text: strings.Repeat("[", 1100), want: "x.json:1: values are nested more than 1000 deep"},
		"JSON, YAML":                 {file: "x.json", text: "a: 1\n", want: "x.json:1: invalid JSON: invalid character 'a' looking for beginning of value"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.file == "" {
				c.file = "x.yaml"
			}
			values, got := parsed(c.file, c.text)
			if got == "" {
				t.Fatalf("parsed to %v", values)
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("error (-want +got):\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}

func TestParseBoundsAliases(t *testing.T) {
	var text strings.Builder
	text.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		name, last := string(rune('a'+i)), string(rune('a'+i-1))
		if i == 1 {
			last = "a0"
		}
		text.WriteString(name + ": &" + name + " [" + strings.Repeat("*"+last+", ", 10) + "]\n")
	}
	_, got := parsed("bomb.yaml", text.String())
	if !strings.Contains(got, "the stage has more than 64 MiB of objects") || !strings.HasPrefix(got, "bomb.yaml:") {
		t.Errorf("error %q does not say that the limit is reached", got)
	}
}

func TestParseBoundsDocuments(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"bytes":  {"a: 1\n---\n" + "b: " + strings.Repeat("x", MaxDocument), "x.yaml:2: the document has more than 4 MiB; split it"},
		"values": {"[" + strings.Repeat(",", maxSeparators) + "]", "x.yaml:1: the document has too many values; split it"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := parsed("x.yaml", c.text); got != c.want {
				t.Errorf("error (-want +got):\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}

// What kustomize reads is what was parsed: encode escapes what YAML would change.
func TestEncodeSurvivesYAML(t *testing.T) {
	texts := []any{"plain", "tab\t", "new\nline", "nel\u0085here", "del\u007f", "c1\u0093", "ls\u2028ps\u2029", "bom\uFEFF", "\uFFFE",
		"<html>&", "😀", `back\slash`, "\u0000", "- x: y # z", "2001-01-01", "0644", "yes", "<<", "=", " lead", "trail "}
	value := map[string]any{"texts": texts, "big": int64(9007199254740993), "float": 1.5, "huge": []any{9e19, -1.5e20}, "larger": 1e300, "none": nil, "flag": true, "<<": "merge"}
	node, err := toNode(value)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parser{objects: objectBudget()}.fromNode("x", node)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(value, got); diff != "" {
		t.Errorf("value (-want +got):\n%s", diff)
	}
}

// A message that quotes a text is text too, wherever that is cut.
func TestShortenedTextIsText(t *testing.T) {
	for padding := range 4 {
		if got := shorten(strings.Repeat("x", padding) + strings.Repeat("世", 64)); !utf8.ValidString(got) || len(got) > 64 {
			t.Errorf("%q", got)
		}
	}
}
