import pytest

import roundwise as rw


@pytest.fixture(params=rw.simd_levels())
def simd_level(request):
    """Runs the test on every instruction-set level of this machine."""
    before = rw.get_simd_level()
    rw.set_simd_level(request.param)
    yield request.param
    rw.set_simd_level(before)


@pytest.fixture
def threads():
    """Sets the number of threads, and puts it back."""
    before = rw.get_num_threads()
    yield rw.set_num_threads
    rw.set_num_threads(before)
