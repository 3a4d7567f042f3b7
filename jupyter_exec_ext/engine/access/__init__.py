"""Access to the engine: token verbs, admission, effective limits, approvals, token watch."""
