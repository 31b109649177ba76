"""The part of `headrace bench secured` that needs no broker."""
