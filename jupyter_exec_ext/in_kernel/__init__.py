"""What runs in kernels: sent to them as text, or loaded by a fork parent, and imported by nobody here."""
