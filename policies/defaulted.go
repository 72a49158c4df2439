package policies

import "context"

// ValidateDefaulted is Validate of in with what the mutations fill in: what becomes of a StageSet is decided, also where
// nobody could default it before. What cannot be filled in is denied like by whoever would store it, unless the spec stays
// as it is. Where no policy defaults anything it costs what Validate does.
func (s *Set) ValidateDefaulted(ctx context.Context, in Input) Decision {
	if in.Object == nil || !s.Defaults() {
		return s.Validate(ctx, in)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	q := newQuestion(in)
	filled, _, failed := s.defaulter(ctx, q).run(ctx, in.Object)
	in.Object = filled
	decision := s.Validate(ctx, in)
	if !q.specUnchanged && len(failed) > 0 {
		decision.Denied = append(decision.Denied, failed...)
		decision.sort()
	}
	return decision
}
