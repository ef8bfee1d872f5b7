"""The tables of a policy, served or at rest: read, compared, written to a file, filled from one, frozen."""
