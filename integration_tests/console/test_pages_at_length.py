"""The pictures of docs/console.md, of a cluster and a query that are at work, and whatever else
takes long: pages of a console that hangs, that is read-only, and of a secured cluster.

Only in full; the pictures are written into docs/images where HEADRACE_PICTURES=1.
"""
