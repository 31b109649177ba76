"""The group coordinators of a broker."""
