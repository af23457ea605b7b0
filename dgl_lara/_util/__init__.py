"""Helpers that know nothing of graphs: memory, progress, randomness, files, tables."""
