"""Planted faults: real graphs posing as samples, spoiled in one known way, more or less strongly.

A validator is worth what it sees. These graphs have one fault each and are right otherwise, so that
a figure that moves says something about the fault, and one that stays has missed it.
"""
