"""The playground: a page that runs a model in the browser, and what writes and serves it."""
