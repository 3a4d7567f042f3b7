"""Parts that both kinds of isolation share: visible files, cgroups, seccomp filters, leftovers."""
