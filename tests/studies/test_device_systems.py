"""Systems of the study on a GPU, and the GPU's kernels on them, on the processor."""

import cuda_host
import pytest

from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends.cuda.backend import CudaBackend
from roundwise_studies.native import gpu_runs as runs
from roundwise_studies.native.gpu_systems import DeviceErrors, Recipe


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernels themselves, on the processor."""
    return cuda_host.HostDevice(tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("action", ["lu/local:fp16x2", "lu/tournament:fp64", "lu:fp32"])
@pytest.mark.parametrize("family", ["mode 3", "gaussian"])
def test_kernels_get_such_systems_through_the_gate(kernels, action, family):
    real = CudaBackend(kernels)
    system = Recipe(family, 90, 1e4, (0, 1)).drawn(real)
    outcome = runs.ALGORITHM.run(system, f"{action}-fp64-fp64-fp64", real)
    assert outcome.converged
    assert outcome.ferr < 1e-9
    assert DeviceErrors(system).backward(outcome.x) <= default_tolerance(90)
