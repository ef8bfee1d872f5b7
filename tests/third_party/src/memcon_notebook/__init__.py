"""Plug-ins for memcon, one a module: memory, benchmark, backbone, framework and learning rule."""
