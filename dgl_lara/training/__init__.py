"""Alg. 1: training g."""
