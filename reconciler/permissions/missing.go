package permissions

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Asker asks an API server, as the account, what the account may do.
type Asker interface {
	// Rules are those in a namespace; fresh ones are not remembered from an earlier question.
	Rules(ctx context.Context, namespace string, fresh bool) (Rules, error)
	// Allowed says whether the account has one permission.
	Allowed(ctx context.Context, p Permission) (bool, error)
}

// maxQuestions is how many questions are under way at once.
const maxQuestions = 8

// Missing are those of the needed permissions that the account does not have, in the order in which they are given. It costs
// a question for each namespace; only for what those leave open, which is what belongs to no namespace and what an
// incomplete answer does not have, a question for each verb of a resource, and where the account may not do that with all
// objects of the resource, one for each object. What is missing is never said from memory.
func Missing(ctx context.Context, asker Asker, needed Permissions, fresh bool) (Permissions, error) {
	in := map[string]Permissions{}
	for _, p := range needed {
		in[p.Namespace] = append(in[p.Namespace], p)
	}
	open := in[""]
	delete(in, "")
	answers, err := each(ctx, slices.Sorted(maps.Keys(in)), func(ctx context.Context, namespace string) (answer, error) {
		return settle(ctx, asker, in[namespace], fresh)
	})
	if err != nil {
		return nil, err
	}
	var missing Permissions
	for _, answer := range answers {
		if answer.final {
			missing = append(missing, answer.missing...)
		} else {
			open = append(open, answer.missing...)
		}
	}
	denied, err := ask(ctx, asker, open)
	missing = append(missing, denied...)
	lacks := make(map[Permission]bool, len(missing))
	for _, p := range missing {
		lacks[p] = true
	}
	return slices.DeleteFunc(slices.Clone(needed), func(p Permission) bool { return !lacks[p] }), err
}

// answer is what the rules of one namespace do not allow; final is false where only a question about each permission tells.
type answer struct {
	missing Permissions
	final   bool
}

// settle compares permissions in one namespace with its rules. Those that are remembered may only say yes.
func settle(ctx context.Context, asker Asker, needed Permissions, fresh bool) (answer, error) {
	rules, err := asker.Rules(ctx, needed[0].Namespace, fresh)
	if err != nil {
		return answer{}, err
	}
	missing := slices.DeleteFunc(needed, rules.Allows)
	if len(missing) > 0 && rules.Remembered {
		return settle(ctx, asker, missing, true)
	}
	return answer{missing: missing, final: !rules.Incomplete}, nil
}

// ask asks about permissions, at first about those for all objects of a resource where there are several.
func ask(ctx context.Context, asker Asker, open Permissions) (Permissions, error) {
	count := map[Permission]int{}
	for _, p := range open {
		count[p.unnamed()]++
	}
	var several Permissions
	seen := map[Permission]bool{} // and in the end, whether the account may do it with all objects
	for _, p := range open {
		if all := p.unnamed(); count[all] > 1 && !seen[all] {
			seen[all] = true
			several = append(several, all)
		}
	}
	denied, err := deniedOf(ctx, asker, several)
	if err != nil {
		return nil, err
	}
	for _, all := range denied {
		seen[all] = false
	}
	return deniedOf(ctx, asker, slices.DeleteFunc(open, func(p Permission) bool { return seen[p.unnamed()] }))
}

// deniedOf are the permissions that the account does not have, each asked about.
func deniedOf(ctx context.Context, asker Asker, list Permissions) (Permissions, error) {
	allowed, err := each(ctx, list, asker.Allowed)
	if err != nil {
		return nil, err
	}
	var denied Permissions
	for i, p := range list {
		if !allowed[i] {
			denied = append(denied, p)
		}
	}
	return denied, nil
}

// each asks a question about each thing, some at once, and has the answers in the order of the things.
func each[T, A any](ctx context.Context, things []T, question func(context.Context, T) (A, error)) ([]A, error) {
	answers := make([]A, len(things))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxQuestions)
	for i, thing := range things {
		group.Go(func() (err error) {
			answers[i], err = question(ctx, thing)
			return err
		})
	}
	return answers, group.Wait()
}
