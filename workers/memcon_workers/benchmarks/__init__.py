"""Task sources with their environments, one file or folder each; the planning core that they share."""
