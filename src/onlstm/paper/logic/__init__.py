"""Logical inference: pairs of propositional formulas, and how well encoders tell the relation of the two."""
