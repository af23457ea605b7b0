"""The game: targets, players, removal, and the value of a coalition."""
