"""The command line: each command is a function from parsed arguments to an answer for people and for programs."""
