"""Tools for a class: the student edition, students' copies of the lessons, and grading."""
