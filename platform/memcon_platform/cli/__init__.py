"""The command `memcon`."""

from memcon_platform.cli.main import main

__all__ = ["main"]
