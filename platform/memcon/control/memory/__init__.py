"""Memory backends, one file each, and their shared parts."""
