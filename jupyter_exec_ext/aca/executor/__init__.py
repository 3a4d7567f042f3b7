"""AutoGen's executor for ACA dynamic sessions."""
