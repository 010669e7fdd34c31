"""One report on a corpus: what of its positional structure is signal, and which encoding fits that.

``diagnose`` measures, ``contrast`` puts two corpora side by side, ``as_text`` and ``as_html`` write. The
command ``posgeom`` is this room from a terminal.
"""

from posgeom._lazy import attach

_HOMES = {
    "Diagnosis": "posgeom.diagnosis.measures",
    "Interval": "posgeom.diagnosis.measures",
    "SchemeFit": "posgeom.diagnosis.measures",
    "diagnose": "posgeom.diagnosis.measures",
    "measure": "posgeom.diagnosis.measures",
    "Reader": "posgeom.diagnosis.reading",
    "Settings": "posgeom.diagnosis.reading",
    "read_corpus": "posgeom.diagnosis.reading",
    "CAPTIONS": "posgeom.diagnosis.report",
    "Advice": "posgeom.diagnosis.report",
    "advise": "posgeom.diagnosis.report",
    "as_html": "posgeom.diagnosis.report",
    "as_text": "posgeom.diagnosis.report",
    "contrast_as_html": "posgeom.diagnosis.report",
    "contrast_as_text": "posgeom.diagnosis.report",
    "draw": "posgeom.diagnosis.report",
    "write": "posgeom.diagnosis.report",
    "Contrast": "posgeom.diagnosis.two_corpora",
    "contrast": "posgeom.diagnosis.two_corpora",
    "main": "posgeom.diagnosis.cli",
}
__all__ = [
    "CAPTIONS",
    "Advice",
    "Contrast",
    "Diagnosis",
    "Interval",
    "Reader",
    "SchemeFit",
    "Settings",
    "advise",
    "as_html",
    "as_text",
    "contrast",
    "contrast_as_html",
    "contrast_as_text",
    "diagnose",
    "draw",
    "main",
    "measure",
    "read_corpus",
    "write",
]
__getattr__, __dir__ = attach(__name__, _HOMES)
