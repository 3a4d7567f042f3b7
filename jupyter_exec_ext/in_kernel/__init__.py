"""Code that runs in kernels: sent to them as text or loaded by a fork parent, and not imported here."""
