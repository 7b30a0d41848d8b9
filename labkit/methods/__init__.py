"""Techniques of training and inference, one a file: a functional core under a card that says when it does not help."""
