"""Explanations of very many targets, cut into shards that processes on one or many machines explain."""
