"""Networks of the course, one family a file."""
