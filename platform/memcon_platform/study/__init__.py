"""Headroom first: the outcome matrix of a config, what it leaves to learn, and any rule replayed on it."""
