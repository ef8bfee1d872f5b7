"""The policy as agents see it: over HTTP (`http`) or in their own process (`local`)."""
