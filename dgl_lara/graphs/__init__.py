"""A graph on disk in parts, read through memory maps: it need not fit into the memory of one machine."""
