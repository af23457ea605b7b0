"""Explanations over HTTP: the KServe v1 protocol, graph updates, and a page to explore a graph with."""
