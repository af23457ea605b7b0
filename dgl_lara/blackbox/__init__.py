"""The explained model f as a black box: adapters, calls, heterogeneous graphs and user models."""
