"""Chat models, one file each."""
