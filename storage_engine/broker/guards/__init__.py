"""What each API asks for, and how requests are kept from those who may not make them."""
