"""The command `headrace`: one file per command.

A failure is one line that names the thing and the remedy.
"""
