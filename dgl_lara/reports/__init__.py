"""Tables and pages for readers."""
