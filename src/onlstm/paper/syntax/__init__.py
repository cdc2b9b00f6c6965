"""Targeted syntactic evaluation: minimal pairs out of templates or from files, and what a model makes of them."""
