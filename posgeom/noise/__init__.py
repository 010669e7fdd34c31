"""What chance adds to distances between counts, and what is left without it.

The squared distance of two samples of one law is not zero but, on average, the sampling floor ``F_ij``. It is
computed from the counts alone and subtracted: ``D^2_c = d^2 - F``. The edge of the noise says how many axes
of the rest are signal; the jackknife over texts gives the errors.
"""

from posgeom.counts.phrases import balanced, maximal_phrases
from posgeom.noise.correction import corrected_distances, corrected_squared_distances, projected_distances
from posgeom.noise.factored import FactoredGram
from posgeom.noise.floor import sampling_floor
from posgeom.noise.nulls import centred_gram, null_spectra
from posgeom.noise.rank import signal_rank, split_half_squared_distances
from posgeom.noise.resampling import Jackknife, jackknife

__all__ = [
    "FactoredGram",
    "Jackknife",
    "balanced",
    "centred_gram",
    "corrected_distances",
    "corrected_squared_distances",
    "jackknife",
    "maximal_phrases",
    "null_spectra",
    "projected_distances",
    "sampling_floor",
    "signal_rank",
    "split_half_squared_distances",
]
