"""Task sources with their environments, one file or folder each."""
