"""Algorithms with named stages, written once for every backend and format."""

from roundwise.algorithms.accuracy import ErrorMeasure
from roundwise.algorithms.base import Algorithm, Outcome, OutcomeStatus, Shared
from roundwise.algorithms.cg_ir import CgIR
from roundwise.algorithms.gmres_ir import GmresIR
from roundwise.algorithms.krylov_ir import KrylovIR
from roundwise.algorithms.least_squares.ls_ir import LsIR
from roundwise.algorithms.lu_ir import LuIR
from roundwise.algorithms.stage import Stage, Stages, Tally
from roundwise.algorithms.stopping import DeploymentRule, PaperRule, StoppingRule
from roundwise.algorithms.verified_solve import VerifiedSolve
