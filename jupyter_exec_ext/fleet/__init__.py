"""Pool of servers at a JupyterHub: one address for all of them, behind ``jupyter exec pool``."""
