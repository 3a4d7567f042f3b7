"""Hostile kernels: code that harms whoever reads its messages or files, and the measurement of what it costs others."""
