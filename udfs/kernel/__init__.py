"""Replay one partition's log on one leader: state, steps, causes of shrinks, and the ledger. All of it is compiled.

Functions share some arguments. ``state`` is a `State`, ``r`` the index of a rule run (or of a group of rule runs) in
its arrays, ``p`` the position of a replica in the assignment, ``now_us`` the present time in the replay, and ``out``
the `KernelOutput`, which receives result rows. A rule run is one rule with one set of parameters, and a term is the
time of one leader epoch.
"""
