"""Clients that write in transactions and read committed ones, and what their readers may see."""
