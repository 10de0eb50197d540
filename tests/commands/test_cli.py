"""The `roundwise` command: results, exit codes, one-line errors, and Ctrl-C."""

import json
import subprocess
import sys

import click
import pytest
from command_line import fail, interrupt, refuse, roundwise, stored, succeed

import roundwise as rw
from roundwise import cli
from roundwise.actions import monotone_space
from roundwise.backends import KNOWN_ENGINES
from roundwise.backends.engines.klu import KLUEngine
from roundwise.machine.identity import Machine
from roundwise.outcomes import OutcomeTable, OutcomeTableError, fill
from roundwise_studies import datasets
from roundwise_studies.datasets import DATA_SETS

QUICK = ["--train", "2", "--test", "0", "--formats", "fp32,fp64"]
ACTIONS = 5  # non-decreasing choices of 2 formats for 4 stages: C(2 + 4 - 1, 4)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "pde.sqlite"
    succeed("fill", "pde", "--table", path, *QUICK)
    return path


def test_fill_stores_what_the_library_computes(tmp_path, filled):
    algorithm = rw.GmresIR.paper(1e-6)
    data = DATA_SETS["pde"](2, 0, seed=0)
    table = OutcomeTable(tmp_path / "library.sqlite")
    fill(table, algorithm, data.train, monotone_space(algorithm.stages, ["fp32", "fp64"]))
    assert len(table) == 2 * ACTIONS
    assert OutcomeTable(filled).digest() == table.digest()


def test_fill_again_computes_nothing(filled):
    assert f"0 outcomes computed, {2 * ACTIONS} in" in succeed(
        "fill", "pde", "--table", filled, *QUICK
    )


@pytest.mark.parametrize("problem_set", ["dense", "sparse", "pde"])
def test_options_reach_the_settings(tmp_path, problem_set):
    path = tmp_path / "t.sqlite"
    options = ["--train", 0, "--test", 1, "--seed", 3, "--tau", 1e-4, "--formats", "fp64"]
    options += ["--arithmetic", "storage"]
    assert "1 outcomes computed, 1 in" in succeed("fill", problem_set, "--table", path, *options)
    system = getattr(datasets, f"{problem_set}_set")(0, 1, seed=3).test[0]
    stored = OutcomeTable(path).stored(
        rw.GmresIR.paper(1e-4), [system], ["fp64-fp64-fp64-fp64"], "storage"
    )
    assert stored.all()


def test_native_runs_are_timed(tmp_path):
    path = tmp_path / "native.sqlite"
    options = ["--train", 1, "--test", 0, "--arithmetic", "native", "--repeats", 2]
    assert "5 outcomes computed" in succeed("fill", "pde", "--table", path, *options)
    facts = json.loads(succeed("info", "--table", path, "--json"))
    assert facts["settings"][0]["measurements"] == 10
    assert "10 timed runs" in succeed("info", "--table", path)


def test_shards_merge_to_the_whole(tmp_path, filled):
    parts = [tmp_path / f"part{i}.sqlite" for i in (1, 2)]
    for i, part in enumerate(parts, start=1):
        options = ["--shard", f"{i}/2", *QUICK]
        assert f"{ACTIONS} outcomes computed" in succeed("fill", "pde", "--table", part, *options)
    out = tmp_path / "all.sqlite"
    assert f"{2 * ACTIONS} outcomes taken over" in succeed("merge", out, *parts)
    assert OutcomeTable(out).digest() == OutcomeTable(filled).digest()


def test_jobs_give_the_same(tmp_path, filled):
    path = tmp_path / "jobs.sqlite"
    succeed("fill", "pde", "--table", path, "--jobs", 2, *QUICK)
    assert OutcomeTable(path).digest() == OutcomeTable(filled).digest()


def test_info_of_the_installation():
    facts = json.loads(succeed("info", "--json"))
    assert facts["roundwise"] == rw.__version__
    assert facts["simd"] == rw.machine.threads.get_simd_level()
    assert facts["threads"] == rw.get_num_threads()
    assert {fmt["name"] for fmt in facts["formats"]} == set(rw.formats.NAMED_FORMATS)
    assert facts["machine"]["key"] == Machine.this().key
    assert facts["native_formats"][-2:] == ["fp32", "fp64"]
    text = succeed("info")
    assert Machine.this().blas in text
    assert rw.__version__ in text
    assert all(name in text for name in rw.formats.NAMED_FORMATS)


def test_info_names_every_engine_or_how_to_install_it(monkeypatch):
    facts = json.loads(succeed("info", "--json"))
    assert [engine["name"] for engine in facts["engines"]] == [e.name for e in KNOWN_ENGINES]
    superlu = next(engine for engine in facts["engines"] if engine["name"] == "superlu")
    assert superlu["methods"] == ["superlu/mmd", "superlu/colamd"]
    assert (superlu["package"], superlu["version"]) == ("scipy", facts["scipy"])
    monkeypatch.setattr(KLUEngine, "installed", False)
    text = succeed("info")
    assert "klu               not installed: pip install 'roundwise[klu]'" in text
    assert "superlu/mmd, superlu/colamd" in text


def test_info_of_a_table(filled):
    facts = json.loads(succeed("info", "--table", filled, "--json"))
    assert facts["problems"] == 2
    assert facts["features"] == {"kappa_exact": 2, "norm_inf": 2}
    sizes = [problem.n for problem in DATA_SETS["pde"](2, 0, seed=0).train]
    assert facts["n"] == [min(sizes), max(sizes)]
    (setting,) = facts["settings"]
    assert (setting["outcomes"], setting["problems"], setting["actions"]) == (10, 2, ACTIONS)
    assert sum(setting["statuses"].values()) == 10
    assert setting["algorithm"]["tolerance"] == 1e-6
    assert setting["stages"] == list(rw.GmresIR.stages)
    text = succeed("info", "--table", filled)
    assert "GmresIR(" in text
    assert "10 outcomes" in text


def test_info_of_an_empty_table(tmp_path):
    OutcomeTable(tmp_path / "t.sqlite")
    facts = json.loads(succeed("info", "--table", tmp_path / "t.sqlite", "--json"))
    assert (facts["problems"], facts["n"], facts["settings"]) == (0, None, [])
    assert "0 problems" in succeed("info", "--table", tmp_path / "t.sqlite")


COMMANDS = [
    "run", "solve", "compare", "calibrate", "info",
    "train", "evaluate", "reproduce", "fill", "merge",
]  # fmt: skip


def test_help_lists_the_commands_in_the_order_of_use():
    lists = succeed("--help").split("Commands:")[1].replace("With roundwise-studies:", "")
    assert [line.split()[0] for line in lists.splitlines() if line.strip()] == COMMANDS
    assert "..." not in succeed("--help").split("Commands:")[1]  # no description is cut short


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_has_an_example(command):
    assert "Example" in succeed(*command, "--help")
    assert " ".join(["roundwise", *command]) in succeed(*command, "--help")


def test_no_command_is_help_and_version_is_told():
    assert succeed() == succeed("--help")
    assert succeed("--version") == f"roundwise {rw.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("fil", "fill"),
        ("fill", "dense|sparse|pde"),
        ("fill dense", "--table"),
        ("fill nonsense --table t", "'dense', 'sparse', 'pde'"),
        ("fill dense --table t --train -1", "x>=0"),
        ("fill dense --table t --train many", "integer"),
        ("fill dense --table t --train 0 --test 0", "at least one system"),
        ("fill dense --table t --tau 0", "choose tau > 0"),
        ("fill dense --table t --tau 1", "choose 0 <"),
        ("fill dense --table t --tau nan", "--tau"),
        ("fill dense --table t --arithmetic exact", "'operation', 'storage'"),
        ("fill dense --table t --formats fp32,fp63", "fp64"),
        ("fill dense --table t --formats ,", "unknown format"),
        ("fill dense --table t --jobs 0", "-1 for all cores"),
        ("fill dense --table t --jobs 2 --dask tcp://a:1", "choose one"),
        ("fill dense --table t --arithmetic native --jobs 2", "timed one by one"),
        ("fill dense --table t --repeats 2", "others are not timed"),
        ("fill dense --table t --shard 3/2", "1 <= i <= n"),
        ("fill dense --table t --shard half", "1 <= i <= n"),
        ("fill dense --table .", "directory"),
        ("merge out", "TABLE"),
        ("merge out nowhere.sqlite", "does not exist"),
        ("info --table nowhere.sqlite", "does not exist"),
        ("info --yaml", "--yaml"),
    ],
)
def test_wrong_arguments(tmp_path, monkeypatch, arguments, complaint):
    refuse(arguments, complaint, tmp_path, monkeypatch)


def test_library_errors_are_one_line(tmp_path, filled):
    foreign = tmp_path / "notes.txt"
    foreign.write_text("no table\n" * 100)
    assert "no outcome table" in fail(1, "info", "--table", foreign)
    assert "no outcome table" in fail(1, "fill", "pde", "--table", foreign)
    assert "no outcome table" in fail(1, "merge", tmp_path / "out.sqlite", filled, foreign)
    assert "is this table" in fail(1, "merge", filled, filled)
    assert not (tmp_path / "out.sqlite").exists()
    assert foreign.read_text() == "no table\n" * 100


def test_errors_of_many_lines_become_one(tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise OutcomeTableError("two\nlines")

    monkeypatch.setattr("roundwise_studies.commands.tables.fill", broken)
    assert fail(1, "fill", "pde", "--table", tmp_path / "t.sqlite", *QUICK) == (
        "roundwise: two lines\n"
    )


def test_interrupt_before_any_work(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("roundwise_studies.commands.tables.fill", interrupted)
    path = tmp_path / "t.sqlite"
    assert "(0 outcomes), run the same command" in fail(130, "fill", "pde", "--table", path, *QUICK)


def test_importing_roundwise_imports_no_extra():
    code = "import roundwise, sys; print({'click', 'gymnasium', 'tqdm'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_without_click_there_is_one_line():
    code = "import sys; sys.modules['click'] = None; import roundwise.cli"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "roundwise: the command needs click; pip install roundwise[cli]\n"


def test_interrupted_fill_goes_on(tmp_path):
    path, whole = tmp_path / "t.sqlite", tmp_path / "whole.sqlite"
    command = ["fill", "sparse", "--train", "4", "--test", "0", "--formats", "fp32,fp64"]
    process = interrupt(*command, "--table", path)
    kept = stored(path)
    assert (process.returncode, process.stdout) == (130, "")
    assert process.stderr.count("\n") == 1
    assert f"({kept} outcomes), run the same command to go on" in process.stderr
    assert 0 < kept < 4 * ACTIONS
    rest = 4 * ACTIONS - kept
    assert f"{rest} outcomes computed" in succeed(*command, "--table", path)
    succeed(*command, "--table", whole)
    assert OutcomeTable(path).digest() == OutcomeTable(whole).digest()


def test_a_command_in_the_background_ignores_interrupts(tmp_path):
    # A shell without job control starts `command &` with SIGINT ignored; POSIX wants it kept so.
    path = tmp_path / "t.sqlite"
    process = interrupt("fill", "pde", "--table", path, *QUICK, handler="SIG_IGN")
    assert (process.returncode, process.stderr) == (0, "")
    assert f"{stored(path)} outcomes computed" in process.stdout


def test_dask_gives_the_same(tmp_path, filled):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    )
    path = tmp_path / "dask.sqlite"
    with cluster:
        succeed("fill", "pde", "--table", path, "--dask", cluster.scheduler_address, *QUICK)
    assert OutcomeTable(path).digest() == OutcomeTable(filled).digest()


def test_no_scheduler_is_one_line(tmp_path):
    pytest.importorskip("distributed")
    options = ["--table", tmp_path / "t.sqlite", "--dask", "nonsense://address"]
    assert "no Dask scheduler at nonsense://address" in fail(1, "fill", "pde", *options, *QUICK)


def test_without_the_studies_their_commands_say_how_to_install_them():
    program = """
import sys

class NotInstalled:
    def find_spec(self, name, *_):
        if name == "roundwise_studies":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, NotInstalled())
from roundwise.cli import main
main(sys.argv[1:], "roundwise")
"""
    for arguments in (["train"], ["reproduce", "dense", "--quick"], ["fill", "--help"]):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert "pip install roundwise-studies" in done.stderr


def test_the_list_of_commands_says_what_they_say_of_themselves():
    """The list is shown without importing any of them."""
    context = click.Context(cli.main)
    shown = roundwise("--help").stdout
    for name, (_, about) in (cli.LIBRARY | cli.LABORATORY).items():
        command = cli.main.get_command(context, name)
        assert command.name == name
        assert command.get_short_help_str(limit=200).rstrip(".") == about.rstrip(".")
        assert about in shown


def test_help_imports_no_solver():
    program = (
        "import sys; from roundwise.cli import main; assert 'roundwise.solver' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
