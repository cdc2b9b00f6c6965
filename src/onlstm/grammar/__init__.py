"""Probabilistic grammars: trees, labels and word probabilities from raw text."""
