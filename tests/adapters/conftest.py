"""The test class for transformers' own suite is copied beside that suite before it can be imported."""

collect_ignore = ["transformers_suite.py"]
