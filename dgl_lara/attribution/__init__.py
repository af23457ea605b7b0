"""The removal-based attribution phi: exact (Eq. 5), sampled (Eq. 9), and the mutual-information value it replaces.

phi_j = E[f(S) | j in S] - E[f(S) | j not in S] over uniform coalitions S: the Banzhaf value of the game.
"""
