"""Training: truncated back-propagation with carried state, NT-ASGD or AdamW, exact resume, many processes."""
