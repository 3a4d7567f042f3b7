"""``jupyter exec kernelspec``: commands that write and check kernelspecs."""
