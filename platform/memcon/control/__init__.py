"""How memory is accessed: the backend-agnostic controller, plans, decomposition and progress signals."""
