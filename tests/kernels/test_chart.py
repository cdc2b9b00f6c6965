"""Inside and outside: enumeration of all trees, golden values of four kinds of grammar, autograd, the C++ kernel."""
