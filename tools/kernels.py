"""Settings that make the numerical libraries choose their kernels as on another CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Setting:
    """Environment variables that choose kernels, and what must be in force then."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    wants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    threads: int = 1

    @property
    def variables(self) -> dict[str, str]:
        return {name: str(self.threads) for name in THREADS} | dict(self.environment)


SETTINGS = (
    Setting("own"),
    Setting("two-threads", wants={"threads": ("2",)}, threads=2),
    # A CPU before AVX2: no fused multiplication anywhere.
    Setting(
        "oldest",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "OPENBLAS_CORETYPE": "Sandybridge",
            "MKL_CBWR": "COMPATIBLE",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        },
        {"torch": ("DEFAULT", "NO AVX")},
    ),
    Setting(
        "avx2",
        {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
        {"torch": ("AVX2",), "openblas": ("Haswell",)},
    ),
    # An OpenBLAS that was built without kernels for Zen takes Haswell's.
    Setting(
        "zen",
        {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Zen"},
        {"torch": ("AVX2",), "openblas": ("Zen", "Haswell")},
    ),
    Setting(
        "avx512",
        {"ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SkylakeX"},
        {"torch": ("AVX512",), "openblas": ("SkylakeX",)},
    ),
)

# PyTorch takes the word of ATEN_CPU_CAPABILITY; only using a kernel shows whether the CPU has it.
PROBE = """
import json, os
import numpy, scipy.linalg, threadpoolctl, torch
x = torch.linspace(-3, 3, 4097)
(torch.nn.functional.gelu(x).exp().softmax(0) @ x).item(); (x[:, None] * x[:64]).sum(0)
numpy.linalg.eigvalsh(numpy.cov(numpy.exp(numpy.sin(numpy.arange(4096.0))).reshape(64, 64)))
cores = {p["architecture"] for p in threadpoolctl.threadpool_info() if p["internal_api"] == "openblas"}
found = numpy.show_config(mode="dicts")["SIMD Extensions"].get("found")
print(json.dumps({
    "torch": torch.backends.cpu.get_cpu_capability(),
    "openblas": "+".join(sorted(cores)) or "none",
    "mkl": os.environ.get("MKL_CBWR", "auto").lower() if torch.backends.mkl.is_available() else "none",
    "numpy": found[-1] if found else "baseline",
    "threads": str(torch.get_num_threads()),
}))
"""


def in_force(setting: Setting) -> tuple[dict[str, str], str]:
    """The kernels that a new process uses under a setting, and why it cannot be run (empty: it can)."""
    probe = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROBE],
        env=os.environ | setting.variables,
        capture_output=True,
        text=True,
    )
    if probe.returncode < 0:
        return {}, f"this CPU lacks its instructions ({signal.Signals(-probe.returncode).name})"
    if probe.returncode:
        return {}, (probe.stderr.strip().splitlines() or ["the probe failed"])[-1]
    facts = json.loads(probe.stdout)
    for library, wanted in setting.wants.items():
        if facts[library] not in wanted:
            return facts, f"{library} uses {facts[library]} here, not {' or '.join(wanted)}"
    return facts, ""
