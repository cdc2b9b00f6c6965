"""`onlstm demo`: a network learns the trees of a grammar from its sentences alone, in two minutes."""
