"""Helpers without graphs: settings, files, processes, memory, progress, randomness, tables."""
