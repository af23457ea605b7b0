"""What is explained: f as a black box, adapters for models called otherwise, models of the user's own."""
