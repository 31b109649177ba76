"""Typed topics: the types of columns, a topic's schema and its versions, what filters decide."""
