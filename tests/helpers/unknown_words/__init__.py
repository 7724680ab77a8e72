"""Inputs with one unknown word each, by reader; ``tests/contract/test_unknown_words.py`` runs them.

One module for each group of readers, each with ``CASES``.
"""
