"""Explanations by a trained g, their storage, refinement and verification."""
