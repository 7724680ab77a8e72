"""Rules that consumers of traces rely on, with evidence, and repairs."""
