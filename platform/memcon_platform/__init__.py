"""The orchestrator and the command `memcon`: the composition root."""
