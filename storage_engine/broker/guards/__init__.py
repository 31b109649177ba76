"""The rights that each API requires, and the guards that refuse requests without them."""
