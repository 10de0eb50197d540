"""Lost workers and a lost scheduler end with a sentence that says what to do."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from command_line import fail, stored, succeed

import roundwise as rw
from roundwise.outcomes import OutcomeTable, WorkersLost, filling, workers
from roundwise.problems import randsvd

distributed = pytest.importorskip("distributed")

CLUSTER = """
import sys
import distributed

if __name__ == "__main__":
    cluster = distributed.LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, processes=True, dashboard_address=None
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""
GUARD_SECONDS = 300.0  # a cluster that a failing test waits for is killed, which ends the test


def started(command, path, allowed_failures=3):
    """A process that imports from these folders; a task may kill as many workers."""
    settings = {
        "PYTHONPATH": os.pathsep.join(path),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures),
    }
    return subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture
def cluster(tmp_path):
    """Starts a Dask cluster in a process of its own, and returns that and a client."""
    with contextlib.ExitStack() as stack:

        def start(workers=1, path=sys.path, **options):
            script = tmp_path / "cluster.py"
            script.write_text(CLUSTER)
            process = started([str(script), str(workers)], path, **options)
            stack.enter_context(process)
            stack.callback(process.kill)
            guard = threading.Timer(GUARD_SECONDS, process.kill)
            guard.start()
            stack.callback(guard.cancel)
            address = process.stdout.readline().strip()
            return process, stack.enter_context(distributed.Client(address))

        yield start


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr(workers, "SECONDS_WITHOUT_WORKERS", 0.0)


def process_then_sleep(task):
    """The first task tells who computes; the others never end."""
    if task > 0:
        time.sleep(10 * GUARD_SECONDS)
    return os.getpid()


def die(task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_cluster_without_workers(cluster, impatient):
    _, client = cluster(workers=0)
    with pytest.raises(WorkersLost, match=r"no worker for 60 s; .* start them with `dask worker"):
        list(workers.results(die, [0], None, client))
    assert client.status == "running"


def test_the_only_worker_is_killed(cluster, impatient):
    _, client = cluster(workers=0)
    address = client.scheduler.address
    command = ["-m", "distributed.cli.dask_worker", address, "--no-nanny"]
    with started(command, sys.path) as worker:
        client.wait_for_workers(1, timeout=GUARD_SECONDS)
        results = workers.results(process_then_sleep, [0, 1, 2], None, client)
        assert next(results) == worker.pid
        worker.kill()
        with pytest.raises(WorkersLost, match="no worker"):
            next(results)


def test_a_task_that_kills_its_workers(cluster):
    _, client = cluster(allowed_failures=0)
    with pytest.raises(WorkersLost, match="for lack of memory; what was finished is stored"):
        list(workers.results(die, [0], None, client))


def test_the_scheduler_is_killed(cluster):
    process, client = cluster()
    results = workers.results(process_then_sleep, [0, 1, 2], None, client)
    next(results)
    process.kill()
    with pytest.raises(WorkersLost, match="start it with `dask scheduler`"):
        next(results)


def test_a_scheduler_that_was_lost_before(cluster):
    process, client = cluster()
    process.kill()
    with pytest.raises(WorkersLost, match="scheduler is lost"):
        list(workers.results(process_then_sleep, [0], None, client))


def test_workers_that_lack_the_package(cluster):
    _, client = cluster(path=[])  # they cannot import this module
    with pytest.raises(WorkersLost, match="install Roundwise, in the version of this process"):
        list(workers.results(process_then_sleep, [0], None, client))


def test_workers_of_another_version(monkeypatch, tmp_path):
    monkeypatch.setattr(filling, "RESULTS_VERSION", filling.RESULTS_VERSION + 1)
    table = OutcomeTable(tmp_path / "t.sqlite")
    with pytest.raises(WorkersLost, match="install the same version everywhere"):
        filling.fill(table, rw.GmresIR(), [randsvd(4, 10.0, rng=0)], ["fp64-fp64-fp64-fp64"])


def test_the_command_ends_with_one_line_and_goes_on_later(cluster, tmp_path, monkeypatch):
    process, client = cluster()
    path = tmp_path / "t.sqlite"
    options = ["--table", path, "--train", 2, "--test", 0, "--formats", "fp32,fp64"]
    write = OutcomeTable.write

    def write_then_kill(self, results):
        write(self, results)
        process.kill()
        process.wait()

    monkeypatch.setattr(OutcomeTable, "write", write_then_kill)
    line = fail(1, "fill", "pde", *options, "--dask", client.scheduler.address)
    assert "the connection to the Dask scheduler is lost; what was finished is stored" in line
    monkeypatch.setattr(OutcomeTable, "write", write)
    before = stored(path)
    assert before > 0
    assert f"{10 - before} outcomes computed, 10 in the table" in succeed("fill", "pde", *options)
