"""The Spark format `headrace`: batch and streaming, source and sink, Arrow record batches both
ways.

Its one rule: of the storage engine it knows only the client, the wire protocol, the ids and the
errors. Imports are light, because Spark imports this package afresh in every planner and worker
process.
"""
