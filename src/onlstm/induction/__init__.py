"""Grammar induction: from raw text to language models, their trees, grammars taught by them, votes, one grammar."""
