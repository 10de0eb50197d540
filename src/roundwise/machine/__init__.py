"""The machine: its identity, the threads and instruction set of our kernels, the BLAS it loads."""

from roundwise.machine.identity import Machine
