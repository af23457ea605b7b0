"""Explaining with a trained g: one target, many, all; storing, refining, verifying."""
