"""``jupyter exec migrate``: rewriting a project's imports of AutoGen's executors."""
