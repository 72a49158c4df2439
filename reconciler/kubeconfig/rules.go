package kubeconfig

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rules say which fields a part may have.
type rules struct {
	allowed []string
	// refused has what is wrong with the fields that a kubeconfig may have elsewhere.
	refused map[string]string
}

// Fields that name a file would have the reconciler read its own, its token for example.
func aFile(instead string) string {
	return "names a file, which would be one of the reconciler's: set " + instead
}

const (
	aProgram  = "would run a program in the reconciler: use a token or a client certificate"
	aProvider = "is a plugin that the reconciler does not have: use a token or a client certificate"
	// impersonation by the kubeconfig would replace the account that the StageSet names.
	impersonates = "would impersonate somebody: the reconciler impersonates the account that the StageSet names, " +
		"and nobody else"
)

var (
	fileRules = rules{allowed: []string{
		"apiVersion", "kind", "preferences", "extensions", "clusters", "users", "contexts", "current-context",
	}}
	clusterRules = rules{
		allowed: []string{
			"server", "tls-server-name", "certificate-authority-data", "insecure-skip-tls-verify", "proxy-url",
			"disable-compression", "extensions",
		},
		refused: map[string]string{"certificate-authority": aFile("certificate-authority-data")},
	}
	userRules = rules{
		allowed: []string{"token", "client-certificate-data", "client-key-data", "username", "password", "extensions"},
		refused: map[string]string{
			"exec":               aProgram,
			"auth-provider":      aProvider,
			"tokenFile":          aFile("token"),
			"client-certificate": aFile("client-certificate-data"),
			"client-key":         aFile("client-key-data"),
			"as":                 impersonates,
			"as-uid":             impersonates,
			"as-groups":          impersonates,
			"as-user-extra":      impersonates,
		},
	}
	contextRules = rules{allowed: []string{"cluster", "user", "namespace", "extensions"}}
)

// part is an object of the file, and where it is: "users[0].user".
type part struct {
	path   string
	fields map[string]any
}

func (p part) at(field string) string {
	if p.path == "" {
		return field
	}
	return p.path + "." + field
}

// reader reads a file and collects what is wrong with it.
type reader struct {
	options  Options
	problems []string
}

// problem says what is wrong with a field.
func (r *reader) problem(of part, field, what string) {
	r.problems = append(r.problems, of.at(field)+" "+what)
}

// vet drops the fields that say nothing, and names those that a part must not have.
func (r *reader) vet(of part, rules rules) part {
	vetted := part{path: of.path, fields: map[string]any{}}
	unknown := false
	for _, field := range slices.Sorted(maps.Keys(of.fields)) {
		value := of.fields[field]
		why, refused := rules.refused[field]
		switch {
		case saysNothing(value):
		case refused:
			r.problem(of, field, why)
		case !slices.Contains(rules.allowed, field):
			unknown = true
		default:
			vetted.fields[field] = value
		}
	}
	if unknown {
		// The name of a field that nobody knows is not repeated: in a file that is none it may be anything.
		where := of.path
		if where == "" {
			where = "it"
		}
		r.problems = append(r.problems, fmt.Sprintf("%s has a field other than %s", where, strings.Join(rules.allowed, ", ")))
	}
	return vetted
}

// saysNothing is true for values that programs write for fields that are not set.
func saysNothing(value any) bool {
	list, isList := value.([]any)
	return value == nil || value == "" || value == false || isList && len(list) == 0
}

// list vets a list of named objects: {name: …, <field>: {…}}.
func (r *reader) list(root part, name, field string, rules rules) map[string]part {
	items, isList := root.fields[name].([]any)
	if !isList {
		r.problem(root, name, "is no list, or missing")
		return nil
	}
	named := map[string]part{}
	for i, item := range items {
		path := fmt.Sprintf("%s[%d]", name, i)
		fields, isObject := item.(map[string]any)
		content, hasContent := fields[field].(map[string]any)
		if !isObject || !hasContent {
			r.problems = append(r.problems, path+" is not of the form {name: …, "+field+": {…}}")
			continue
		}
		outer := r.vet(part{path: path, fields: fields}, rulesOfItem(field))
		inner := r.vet(part{path: path + "." + field, fields: content}, rules)
		key := r.text(outer, "name")
		if _, twice := named[key]; twice {
			r.problem(outer, "name", "is that of another one too")
		}
		named[key] = inner
	}
	return named
}

func rulesOfItem(field string) rules { return rules{allowed: []string{"name", field}} }

// text is a field that is a text, empty if it is not set.
func (r *reader) text(of part, field string) string {
	value, isSet := of.fields[field]
	text, isText := value.(string)
	if isSet && !isText {
		r.problem(of, field, "is no text: quote it")
	}
	return text
}

// data is what a field is the base64 of, empty if it is not set.
func (r *reader) data(of part, field string) string {
	data, err := base64.StdEncoding.DecodeString(r.text(of, field))
	if err != nil {
		r.problem(of, field, "is not base64")
		return ""
	}
	return string(data)
}
