"""The package and each of its extras, installed alone."""
