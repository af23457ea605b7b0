"""What several methods share; no method of its own."""
