"""One explanation to look at: words, layout, pictures, pages."""
