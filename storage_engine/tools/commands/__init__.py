"""The commands of `headrace`, one in each file; those of local clusters are in a package of their
own."""
