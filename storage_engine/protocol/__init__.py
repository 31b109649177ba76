"""Bytes on the wire and on disk: framing, APIs, record batches. Nothing here does IO.

`record_batch` and `framing` serve the broker and import neither numpy nor PyArrow; `records` turns
rows into Arrow and back for clients.
"""
