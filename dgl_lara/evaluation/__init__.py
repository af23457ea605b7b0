"""Evaluation of one run, and benchmarks of many methods."""
