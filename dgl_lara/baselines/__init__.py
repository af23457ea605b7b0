"""Methods to compare with, one file each; `method.py` says what they have in common."""
