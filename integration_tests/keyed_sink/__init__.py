"""Exactly once into tables of databases."""
