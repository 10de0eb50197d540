"""Where every experiment departs from the paper, and the paper's numbers from its text.

The reproduction follows the *text*. The paper's numbers come from its released code, which differs
from it. What is said about that code comes from reading it (https://github.com/inEXASCALE/rlops);
it was not run. `roundwise reproduce departures` measures what each departure does to the numbers.
"""

Departures = tuple[tuple[str, str], ...]

EVERYWHERE: Departures = (
    (
        "Ours: untried actions are never greedy",
        "The paper's argmax runs over all actions, untried ones with the value 0. Our policy never "
        "chooses an action that it has not tried in a state, and takes all-FP64 in a state that "
        "training never met.",
    ),
    (
        "Ours: stop at the first stagnating step",
        "The text defines stagnation as one step with ||z_i|| >= tau ||z_{i-1}||, and says that "
        "the scripts wait for three in a row. Ours stops at the first one, as the definition says, "
        "and as an average of 2.00 outer steps implies.",
    ),
    (
        "Ours: every operation is rounded",
        "In `operation` arithmetic each +, -, *, / and square root is rounded to the format of its "
        "stage. The released code factorizes in float64 and rounds the factors afterwards; its "
        "triangular solves and dot products run in float64. `--arithmetic storage` comes close to "
        "that.",
    ),
    (
        "The paper's code: update and GMRES change places",
        "Actions are made in the order u_f, u, u_g, u_r, and taken apart as u_f, u_g, u, u_r: the "
        "format that the text gives the update is GMRES's, and the other way round.",
    ),
    (
        "The paper's code: less is rounded, and more",
        "x stays in float64, only z is rounded to u. But A and b are rounded to u as well: with u "
        "below FP64 the code converges to the solution of another system.",
    ),
    (
        "The paper's code: TF32 is computed as FP32",
        "In GMRES, residual and update the released code computes tf32 with 24 significand bits, "
        "yet rewards it as 11; ours computes with 11. Numbers of actions with TF32 in these stages "
        "cannot be compared.",
    ),
    (
        "The paper's code: how iterations are counted",
        "For a GMRES stage below FP64 it records 0 iterations if the inner solve converged and n "
        "if not, and a count of 0 is charged a penalty of 5. Numbers of GMRES iterations, and what "
        "was learned from them, differ from ours wherever u_g is below FP64.",
    ),
    (
        "The paper's code: the inner tolerance",
        "It is absolute for a GMRES stage below FP64. For FP64 SciPy's gmres is called, whose "
        "tolerance is on the residual that is not preconditioned, too. Ours is relative, on the "
        "preconditioned residual.",
    ),
    (
        "The paper's code: the last update is dropped",
        "The update that triggers the stop is not applied. With a stagnation ratio of 1e-6 or 1e-8 "
        "nearly every solve stops at the second step, with one applied correction. We apply it.",
    ),
    (
        "The paper's code: bins, epsilon and floors",
        "Its bin index truncates where the text takes the nearest bin; its epsilon decays per "
        "step, not per episode; features below 1 are clipped to 1; systems are met from low to "
        "high kappa; its reward counts significand bits without the implicit one.",
    ),
    (
        "The top 25 of 35 actions",
        "The 10 actions that are left out are exactly those with u_f = u = bf16 (in the paper's "
        "code, u_f = u_g = bf16): out of reach by construction.",
    ),
)

PAPERS_DENSE: Departures = (
    (
        "Success of the paper is vacuous for large kappa",
        "Its threshold is tau times the median kappa of the range, and exceeds 1 where kappa is "
        "above 1 / tau: then the answer x = 0 counts as a success. The strict rate beside it asks "
        "for nbe <= tau and ferr <= max(tau, 10 ferr of FP64).",
    ),
    (
        "Where 2.93 GMRES iterations of FP64 at high kappa come from",
        "At tau = 1e-8 and kappa above 1e6 the paper's all-FP64 takes 2.93 iterations, ours 2.00, "
        "one in each outer step. The paper's code calls SciPy's gmres, which goes on until the "
        "residual that is not preconditioned has shrunk by tau, too: at kappa = 1e8 that often "
        "takes a second iteration. The departure study has the numbers.",
    ),
)

SPARSE: Departures = (
    (
        "Sparse systems: the shift beta",
        "The text gives no beta. Ours is uniform in 1e-9 to 1e-7, one draw per system, which "
        "reproduces the range of condition numbers that the paper reports.",
    ),
)

PDE: Departures = (
    (
        "PDE systems: contrast and scaling",
        "The text bounds the contrast from above alone (1e13); ours is log-uniform in 1e6 to "
        "1e13. It leaves open whether matrices carry the factor 1 / h^2, which changes their "
        "norm, a feature that the policy sees.",
    ),
    (
        "PDE systems: means of a few",
        "The mean errors of this set rest on the worst few of 25 high-contrast systems: other "
        "draws by the same rules change all-FP64's mean ferr by orders of magnitude (see the "
        "findings). A factor between the paper's mean and ours says little here.",
    ),
)

OF_DATA = {"dense": PAPERS_DENSE, "sparse": SPARSE, "pde": PDE}
"""By the data set of a simulated experiment."""

NATIVE: Departures = (
    (
        "No run looks at the true solution",
        "The paper's native solver stops by the error against x_true. Ours stops when the backward "
        "error is at FP64's level, sqrt(n) u, when it will not get there, or after ten steps. "
        "tau only judges the answers afterwards, so that the rows of both tau are of one policy.",
    ),
    (
        "The FP64 baseline is blocked and threaded",
        "The paper's is an unblocked LU on one thread, 320 ms at n about 1250. Ours runs the same "
        "blocked LU in the stage factor in every precision, and stands beside dgesv and dsgesv.",
    ),
    (
        "The price of the features counts",
        "The paper's condition estimate takes a full FP64 LU that its speedups leave out. Ours "
        "takes an FP32 LU, whose time is in the columns with all costs. It sees condition numbers "
        "up to about 1e7; beyond, it only says that they are large.",
    ),
    (
        "The order of the stages",
        "The paper's native actions are monotone in the order (u_f, u_g, u, u_r), ours in (u_f, u, "
        "u_g, u_r), as in its simulations: 10 of 15 actions are in both. An update in FP64, "
        "without which FP64's level is out of reach, then means GMRES in FP64; GMRES in FP32 is "
        "only in the paper's order, which `--order paper` takes.",
    ),
    (
        "What 16 bits are here",
        "fp16 is a storage format: the rounded matrix is factorized in FP32, the factors are "
        "kept in 16 bits. bf16 is computed with the processor's BF16 instructions, with sums in "
        "FP32.",
    ),
    (
        "Untried actions are never greedy",
        "The tabular policy never chooses an action that it has not tried in a state, and takes "
        "all-FP64 in a state that training never met. The policies that learn time are "
        "regressions: 50 systems fill few of 100 bins.",
    ),
)
