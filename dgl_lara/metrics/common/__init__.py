"""What several metrics share; no metric of its own."""
