"""Kernelspec commands: the grammar, the writer, and the kernelspecs of this machine."""
