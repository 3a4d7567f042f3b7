"""Packages of sessions: the index of this machine, the server's download of wheels, and its cache of them."""
