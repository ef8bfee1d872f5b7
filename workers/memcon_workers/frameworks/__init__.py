"""Agent frameworks: the loop of model calls and environment steps, and the prompt that all of them share."""
