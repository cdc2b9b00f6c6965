"""Unsupervised parsing, the paper's section 5.2: models' trees scored against treebanks."""
