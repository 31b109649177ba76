"""Delivery patterns, one a file: what comes again, and what is lost, when a program dies."""
