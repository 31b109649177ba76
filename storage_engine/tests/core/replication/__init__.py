"""The rules of leaders and followers."""
