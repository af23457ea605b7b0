"""Graphs: operations on them, subgraphs, and graphs that are stored in parts."""
