"""Texts as words: tokenizers, filters of words, scores."""
