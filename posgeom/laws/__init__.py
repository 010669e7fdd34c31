"""Laws that a corpus may follow: places on a line, decay with the position, dependence by lag.

A power line puts position i at ``((1 + i)^a - 1) / a``; a relaxation is the decay of the deviation from the
law far inside a text; dependence by lag is the mutual information ``I(k)`` of two words k positions apart.
"""

from posgeom.encodings.formulas import power_line
from posgeom.laws.dependence import (
    BiasFit,
    LagInformation,
    common_words,
    fit_bias,
    lag_information,
    mutual_information,
)
from posgeom.laws.power_line import PowerLine, fit_power_line, fitted_schemes
from posgeom.laws.relaxation import (
    FAMILIES,
    DecayFit,
    Deviations,
    LineFit,
    deviations,
    fit_decay,
    fit_line,
    line_law,
    matched_deviations,
    places,
)

__all__ = [
    "FAMILIES",
    "BiasFit",
    "DecayFit",
    "Deviations",
    "LagInformation",
    "LineFit",
    "PowerLine",
    "common_words",
    "deviations",
    "fit_bias",
    "fit_decay",
    "fit_line",
    "fit_power_line",
    "fitted_schemes",
    "lag_information",
    "line_law",
    "matched_deviations",
    "mutual_information",
    "places",
    "power_line",
]
