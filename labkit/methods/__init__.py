"""Training and inference techniques, one a file: a functional core, and a card at the top that says when it does not help."""
