import hypothesis
import pytest
from threadpoolctl import threadpool_limits

import roundwise as rw
from roundwise.machine import blas, threads
from roundwise.policies import NeighbourPolicy

hypothesis.settings.register_profile("untimed", deadline=None)  # the machine may be busy
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """Test matrices are small, and spinning BLAS threads slow each other down on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True)
def threads_as_before():
    """Puts back the threads that a test sets: more BLAS threads than cores can make the tests
    that come after it in the same process a hundred times slower."""
    libraries = [library for package in ("scipy", "numpy") if (library := blas.bundled(package))]
    before = threads._threads, [library.threads for library in libraries]
    yield
    threads._threads = before[0]
    for library, count in zip(libraries, before[1], strict=True):
        library.threads = count


@pytest.fixture(autouse=True)
def formats_as_before():
    """Forgets the formats that a test registers: others list all that there are."""
    before = dict(rw.formats.NAMED_FORMATS)
    yield
    rw.formats.NAMED_FORMATS.clear()
    rw.formats.NAMED_FORMATS.update(before)


@pytest.fixture(scope="session", autouse=True)
def no_profile_of_the_user(tmp_path_factory):
    """Generic prices decide, whatever `roundwise calibrate` has left in the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROUNDWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=rw.machine.threads.simd_levels())
def simd_level(request):
    """Runs the test on every instruction-set level of this machine."""
    before = rw.machine.threads.get_simd_level()
    rw.machine.threads.set_simd_level(request.param)
    yield request.param
    rw.machine.threads.set_simd_level(before)


@pytest.fixture
def small_crossover(monkeypatch):
    """Lets systems of n = 150 and more be learned from, so that tests are fast."""
    monkeypatch.setattr(NeighbourPolicy, "crossover", lambda self, kind: 150)


@pytest.fixture(name="threads")
def set_threads():
    """Sets the number of threads, BLAS's too; `threads_as_before` puts them back."""
    return rw.set_num_threads
