"""Import migration from AutoGen's executors to this package."""
