"""Judging: one run, or many methods side by side."""
