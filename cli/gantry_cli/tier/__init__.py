"""Reading a tier from outside: which groups it holds, what their chains say, if they are sound."""
