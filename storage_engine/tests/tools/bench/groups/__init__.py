"""`headrace bench groups`: no broker is started."""
