"""Distances between positions, and configurations of points that have such distances.

From distributions ``mu_i`` come distances ``d_ij = || sqrt(mu_i) - sqrt(mu_j) ||``; from distances, by the
Gram matrix ``B = -1/2 J D^2 J``, points in d dimensions; from points and distances, the stress: the squared
misfit as a share of the squared distances. The violation rate asks for the order of distances only.
"""

from posgeom.geometry.distances import euclidean_distances, fisher_rao_distances, hellinger_distances
from posgeom.geometry.mds import MDS, classical_mds, effective_rank, gram_matrix, low_rank, smacof
from posgeom.geometry.monotonicity import violation_rate
from posgeom.geometry.stress import kruskal_stress1, optimal_scale, pair_stress, rank_agreement, stress

__all__ = [
    "MDS",
    "classical_mds",
    "effective_rank",
    "euclidean_distances",
    "fisher_rao_distances",
    "gram_matrix",
    "hellinger_distances",
    "kruskal_stress1",
    "low_rank",
    "optimal_scale",
    "pair_stress",
    "rank_agreement",
    "smacof",
    "stress",
    "violation_rate",
]
