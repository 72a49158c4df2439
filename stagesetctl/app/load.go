package app

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/stagesetctl/files"
)

// errNoPolicy is that there is nothing to do.
var errNoPolicy = errors.New("there is no StageSetPolicy in these files")

// loadPolicies are the policies in files, and built-in ones beside them.
func (c *cli) loadPolicies(ctx context.Context, paths []string, beside []v1alpha1.StageSetPolicy) ([]files.Policy, error) {
	var list []files.Policy
	if len(paths) > 0 {
		documents, err := c.reader.Read(paths...)
		if err != nil {
			return nil, err
		}
		if list, err = files.Policies(ctx, documents); err != nil {
			return nil, err
		}
	}
	for _, policy := range beside {
		if i := slices.IndexFunc(list, func(p files.Policy) bool { return p.Parsed.Name == policy.Name }); i >= 0 {
			return nil, list[i].At("metadata.name", "policy "+policy.Name+" is also a built-in one")
		}
		written, err := asFile(policy)
		if err != nil {
			return nil, err
		}
		list = append(list, written)
	}
	switch {
	case len(list) > 0:
		return list, nil
	case len(paths) == 0:
		return nil, errors.New("name files or directories with policies, or use --builtin")
	default:
		return nil, errNoPolicy
	}
}

// builtinPath stands for the files of the built-in policies.
const builtinPath = "builtin/"

// asFile is a built-in policy as if it were in a file.
func asFile(policy v1alpha1.StageSetPolicy) (files.Policy, error) {
	text, err := yaml.Marshal(policy)
	if err != nil {
		return files.Policy{}, err
	}
	documents, err := files.Parse(builtinPath+policy.Name+".yaml", string(text))
	if err != nil {
		return files.Policy{}, err
	}
	return files.Policy{Document: documents[0], Parsed: policy}, nil
}

// builtIn are the built-in policies, if asked for, as they are when no config sets them.
func builtIn(wanted bool) ([]v1alpha1.StageSetPolicy, error) {
	if !wanted {
		return nil, nil
	}
	return builtin.Policies()
}

// enabled are the built-in policies, if asked for, as the policy config sets them.
func (a *asked) enabled(wanted bool) ([]v1alpha1.StageSetPolicy, error) {
	if !wanted {
		return nil, nil
	}
	return builtin.Configured(a.config)
}
