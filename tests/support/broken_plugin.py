"""A plug-in module whose optional library is absent."""

from memcon.errors import MissingExtraError

raise MissingExtraError("networkx", "graph")
