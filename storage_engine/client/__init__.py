"""The native client: what the connector and the tools use to talk to brokers.

Rule: synchronous, without threads; every call ends within a documented deadline, in a result or in
one typed error of one line.
"""
