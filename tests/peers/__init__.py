"""Other projects' own tests, run on this package's classes in the place of theirs."""
