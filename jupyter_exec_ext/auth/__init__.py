"""Who calls and what they may do: pure decisions, standard library only."""
