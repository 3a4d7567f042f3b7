"""A newcomer in a fresh clone and environment: the README's lines and both tutorials as written, in each shell."""
