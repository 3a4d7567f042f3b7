"""Where records and event logs are kept."""
