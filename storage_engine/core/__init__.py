"""The pure core: state machines and values, with no IO, clock, thread, await or logging."""
