"""memcon, the library: learned memory control of LLM agents. numpy and the standard library only."""
