"""The rules of the controller."""
