"""Running a plan: the pure Supervisor, the pools that carry its instructions out, progress and status."""
