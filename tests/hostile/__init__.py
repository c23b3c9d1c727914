"""Hostile input: what to write into answers, files, requests and rows, and what it must cost.

`values` has the tables, which tests of every room share; the other modules feed one kind of
input each, and return what was wrong. ``tox -e properties`` draws many examples of them.
"""
