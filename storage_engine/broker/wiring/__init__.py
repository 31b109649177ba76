"""Joins the parts of one broker over given ports; the same for a real and a simulated one.

`build` reads from top to bottom: each subsystem has a module that makes its parts out of those
before it, and `handlers` gives each API what its handler needs.
"""
