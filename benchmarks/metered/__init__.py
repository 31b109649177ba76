"""The broker that `headrace bench metrics` starts."""
