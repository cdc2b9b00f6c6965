"""Text to ids: the tokenizer, the files it reads, corpora in memory-mapped files. No torch, and no work at import."""
