"""Catalogue of the texts of errors and notices, one file for each room, by code.

An error is `<name> must be <range> (got <value>). <one remedy>`. A notice states what happened, what it means and what
to do. Placeholders are filled by `str.format`, so `{count:,}` and `{got!r}` work.
"""
