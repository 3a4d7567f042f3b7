"""Sans-I/O logic of the clients: which requests an operation makes, and the meaning of their answers."""
