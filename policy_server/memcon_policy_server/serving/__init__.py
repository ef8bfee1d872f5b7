"""Owners and gateways under Ray Serve: what `memcon serve` and a sweep start. Nothing here decides anything."""
