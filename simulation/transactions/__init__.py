"""Clients that write in transactions and read committed ones, and the checks of what their readers
see."""
