"""Judging explanations. Metrics see scores and the game, never the method that made the scores."""
