"""Brokers and commands that are forked from a process which has loaded all that they need: until a
broker serves, its start as a program takes over ten times as much of the processor, and a run of
the tests has hundreds of them.

What is forked goes through the same `main` as what is started, with its arguments, folder,
environment, files and session. `HEADRACE_FORK=0` starts all of it for real, and so does
`HEADRACE_FAULTS=full`.
"""
