package tenant

import "k8s.io/apimachinery/pkg/types"

// UID is the account's UID when the client was made, for tests to tell accounts of one name apart.
func (c *Client) UID() types.UID { return c.uid }
