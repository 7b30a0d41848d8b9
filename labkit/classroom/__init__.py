"""A class: the student edition, own copies of the lessons, what is handed in and how it is
graded.
"""
