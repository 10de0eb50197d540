"""
A table of outcomes on several hosts
====================================

Fill it on a Dask cluster: ``python examples/fill_on_cluster.py tcp://head:8786 dense.sqlite``.

docs/cluster.md tells how to start the scheduler and the workers. Without an address, a cluster of
three processes is started here. Whichever computes, the facts are the same bits; a host that is
lost costs its tasks once more, and after anything worse the same command goes on where it stopped.
"""

# sphinx_gallery_thumbnail_path = "images/thumb-fill_on_cluster.png"

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from distributed import Client, LocalCluster

import roundwise as rw
from roundwise.actions import monotone_space
from roundwise.outcomes import OutcomeTable, fill, progress_bar


def main() -> None:
    address, path = (*sys.argv[1:3], None, None)[:2]
    with ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "dense.sqlite"
        if address is None:
            own = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(own)
        client = stack.enter_context(Client(address))
        client.wait_for_workers(1)

        algorithm = rw.GmresIR.paper(1e-6)
        space = monotone_space(algorithm.stages, ("bf16", "fp32", "fp64"))
        problems = [rw.problems.randsvd(30, 10.0**k, rng=k) for k in range(1, 9)]
        table = OutcomeTable(path)
        computed = fill(
            table, algorithm, problems, space, client=client, progress=progress_bar("outcomes")
        )
        hosts = len(client.nthreads())
        print(f"{computed} outcomes computed by {hosts} workers, {len(table)} in the table")


if __name__ == "__main__":
    main()
