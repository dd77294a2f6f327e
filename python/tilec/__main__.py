"""`python -m tilec`: the command line."""
from ._program import main

main()
