"""Compiled kernels for scoring and correcting explanations."""
