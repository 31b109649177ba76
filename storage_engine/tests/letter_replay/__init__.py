"""Dead letters that go back."""
