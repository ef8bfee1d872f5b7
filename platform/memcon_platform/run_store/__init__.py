"""Runs in an object store: where they are, who drives one, its working copy here, and its copies for readers."""
