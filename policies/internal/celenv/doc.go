// Package celenv is the CEL of the product: which variables an expression sees, how it is compiled, what it may cost and how
// it is evaluated. It is the only package that imports k8s.io/apiserver and cel-go, whose interfaces are not stable. It
// knows nothing of policies, and never decides anything.
//
// The dialect is that of ValidatingAdmissionPolicy: the same libraries, variables and types. It has one variable more
// (tenant), and its own limits. The API server's evaluators are not used, because their set of variables is closed and they
// stop at a budget that is common to all expressions; programs are compiled with the API server's environment, and where their
// cost cannot matter with one of the same functions that does not count it (unmetered.go), and evaluated with our own
// activation.
package celenv
