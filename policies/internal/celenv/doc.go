// Package celenv is the CEL of the product: which variables exist, how an expression is compiled, what it may cost, and how
// it is evaluated. It is the only package that imports k8s.io/apiserver and cel-go, whose interfaces are not stable. It never
// knows what a policy is, and never decides anything.
package celenv

import "k8s.io/apiserver/pkg/authorization/authorizer"

// Authorizer answers the checks of the variable authorizer.
type Authorizer = authorizer.UnconditionalAuthorizer
