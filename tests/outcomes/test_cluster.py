"""A cluster of hosts, each played by a process: one is killed, and the facts are the same."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

import roundwise as rw
from roundwise.actions import monotone_space
from roundwise.outcomes import OutcomeTable, fill
from roundwise.problems import randsvd

distributed = pytest.importorskip("distributed")

WORKERS = 3
GUARD_SECONDS = 300.0  # a process that a failing test waits for is killed, which ends the test


@pytest.fixture
def start(tmp_path):
    """Starts a process as a host would, in its own folder: they share nothing but the network."""
    with contextlib.ExitStack() as stack:

        def started(name, *command):
            folder = tmp_path / name
            folder.mkdir()
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{command[0]}", *command[1:]],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            guard = threading.Timer(GUARD_SECONDS, process.kill)
            guard.start()
            stack.callback(guard.cancel)
            return process

        yield started


@pytest.fixture
def cluster(start, tmp_path):
    """Three workers, none of them a child of another, and a client of their scheduler."""
    found = tmp_path / "scheduler.json"  # the scheduler writes its address there
    start("head", "dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", found)
    options = ["--scheduler-file", found, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
    hosts = [start(f"host{host}", "dask_worker", *options) for host in range(WORKERS)]
    with distributed.Client(scheduler_file=found, timeout=GUARD_SECONDS) as client:
        client.wait_for_workers(WORKERS, timeout=GUARD_SECONDS)
        yield hosts, client


def test_a_lost_host_changes_no_bit(cluster, tmp_path):
    hosts, client = cluster
    algorithm = rw.GmresIR.paper(1e-6)
    problems = [randsvd(24, 10.0**k, rng=k) for k in range(1, 7)]
    actions = monotone_space(algorithm.stages, ("bf16", "fp32", "fp64"))
    alone = OutcomeTable(tmp_path / "alone.sqlite")
    fill(alone, algorithm, problems, actions)

    assert sorted(client.run(os.getpid).values()) == sorted(host.pid for host in hosts)
    together = OutcomeTable(tmp_path / "together.sqlite")
    kills = []

    def lose_a_host(done, total):
        """Kill the second host, once, when first results have arrived and others are under way."""
        if not kills and 0 < done < total:
            hosts[1].kill()
            kills.append(hosts[1].wait())

    fill(together, algorithm, problems, actions, client=client, progress=lose_a_host)
    assert kills
    assert len(client.nthreads()) == WORKERS - 1
    assert together.digest() == alone.digest()
