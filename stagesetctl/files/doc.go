// Package files reads policies and objects from YAML and JSON files, and knows where in a file a field is, so that whatever
// is wrong is shown as file:line:column. It never evaluates a policy and never writes a file.
package files
