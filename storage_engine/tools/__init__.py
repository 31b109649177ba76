"""The command `headrace`: one file per command.

Its one rule: a failure is one line that names the thing and the remedy.
"""
