"""Topics as tables of a lakehouse: each row once, in the table's own commits."""
