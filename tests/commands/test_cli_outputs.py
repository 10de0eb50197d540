"""What commands write: never onto their input, checked before any work, whole or not at all."""

import os
import sqlite3
from pathlib import Path

import click
import pytest
from command_line import fail, roundwise, succeed

import roundwise as rw
from roundwise.cli import main
from roundwise.commands import outputs
from roundwise.outcomes import OutcomeTable, OutcomeTableError, fill
from roundwise.problems import randsvd, write_matrix_market

SYSTEM = randsvd(12, 1e2, rng=0)
FP64 = "fp64-fp64-fp64-fp64"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with A.mtx, b.mtx and a trained p.json; the present one."""
    monkeypatch.chdir(tmp_path)
    write_matrix_market("A.mtx", SYSTEM.A)
    write_matrix_market("b.mtx", SYSTEM.b[:, None])
    tuner = rw.Tuner(rw.GmresIR.paper(), ["fp64"], episodes=1, table="p.sqlite").fit([SYSTEM])
    tuner.save("p.json")
    return tmp_path


@pytest.fixture
def no_work(monkeypatch):
    """Reading, generating, solving and measuring fail the test."""

    def work(*args, **kwargs):
        raise AssertionError("this is work")

    for name in (
        *("roundwise.commands.solve.FileSystem.read", "roundwise.commands.solve.solve"),
        *("roundwise.commands.solve.Tuner.load", "roundwise.commands.calibrate.calibrate"),
        "roundwise_studies.commands.train.load_systems",
        "roundwise_studies.commands.evaluate.load_systems",
        "roundwise_studies.commands.tables.fill",
        "roundwise_studies.commands.reproduce.reproduce",
    ):
        monkeypatch.setattr(name, work)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# The same file


def links(path):
    """Other names of a file."""
    os.symlink(path, f"symbolic-{path}")
    os.link(path, f"hard-{path}")
    return [path, f"./{path}", Path(path).absolute(), f"symbolic-{path}", f"hard-{path}"]


@pytest.mark.parametrize("taken", ["A.mtx", "b.mtx", "p.json"])
def test_solve_does_not_overwrite_what_it_reads(folder, no_work, taken):
    names = links(taken)
    before = content(folder)
    for name in names:
        line = fail(2, "solve", "A.mtx", "b.mtx", "--policy", "p.json", "-o", name)
        assert f"would overwrite {taken}, which is read; choose another file" in line
    assert content(folder) == before


def test_train_and_evaluate_do_not_overwrite_what_they_read(folder, no_work):
    os.symlink("A.mtx", "A.json")
    os.symlink("A.mtx", "A.sqlite")
    before = content(folder)
    for arguments in (
        ("train", "A.mtx", "-o", "A.json"),
        ("train", "A.mtx", "-o", "new.json", "--table", "A.mtx"),
        ("train", "A.sqlite", "-o", "A.json"),
        ("evaluate", "p.json", "A.mtx", "--table", "A.sqlite"),
        ("evaluate", "p.json", "A.mtx", "--table", "p.json"),
    ):
        assert "would overwrite" in fail(2, *arguments)
    assert content(folder) == before


def test_a_link_stays_and_its_target_is_replaced(folder):
    Path("x.mtx").write_text("old")
    os.symlink("x.mtx", "link.mtx")
    succeed("solve", "A.mtx", "b.mtx", "-o", "link.mtx")
    assert Path("link.mtx").is_symlink()
    assert Path("x.mtx").read_text().startswith("%%MatrixMarket")


# Before any work

WRITING = {
    ("solve", "out"): "solve A.mtx -o {}/x.mtx",
    ("train", "out"): "train A.mtx -o {}/new.json",
    ("train", "table"): "train A.mtx -o new.json --table {}/t.sqlite",
    ("evaluate", "table"): "evaluate p.json A.mtx --table {}/t.sqlite",
    ("reproduce", "cache"): "reproduce dense --cache {}/cache",
    ("reproduce", "out"): "reproduce dense --out {}/out",
    ("reproduce", "pack"): "reproduce dense --pack {}/outcomes.tar.xz",
    ("calibrate", "out"): "calibrate --out {}/profile.json",
    ("fill", "table"): "fill dense --table {}/t.sqlite",
    ("compare", "out"): "compare A.mtx -o {}/f.png",
    ("merge", "out"): "merge {}/t.sqlite p.sqlite",
}


def test_the_list_has_all_outputs():
    """Paths that need not exist are written to."""
    context = click.Context(main)
    found = {
        (name, option.name)
        for name in main.list_commands(context)
        for option in main.get_command(context, name).params
        if isinstance(option.type, click.Path) and not option.type.exists
    }
    assert found == WRITING.keys()


def each_output(but=()):
    """Runs a test with every output of every command, but some commands'."""
    keys = [key for key in WRITING if key[0] not in but]
    return pytest.mark.parametrize(
        "command", [pytest.param(WRITING[key], id="-".join(key)) for key in keys]
    )


def refused(arguments, folder):
    """A failing command, which leaves all files as they were."""
    before = content(folder)
    result = roundwise(*arguments.split())
    assert result.exit_code in (1, 2), result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert content(folder) == before
    return result.stderr


@each_output(but=("reproduce", "calibrate"))  # they make it
def test_a_folder_that_is_not_there(folder, no_work, command):
    line = refused(command.format("nowhere"), folder)
    assert "nowhere" in line
    assert "folder" in line


@each_output()
def test_a_folder_that_is_a_file(folder, no_work, command):
    assert "b.mtx" in refused(command.format("b.mtx"), folder)


@each_output()
def test_a_folder_that_cannot_be_written_to(folder, no_work, command):
    if os.name != "posix" or not Path("/proc/self").is_dir():
        pytest.skip("needs a folder that not even root may write to")
    assert "/proc" in refused(command.format("/proc"), folder)


@each_output(but=("reproduce",))  # whose targets are folders
def test_a_target_that_is_a_folder(folder, no_work, command):
    name = command.format("taken").split("taken/")[1].split()[0]
    (folder / "taken" / name).mkdir(parents=True)
    assert name in refused(command.format("taken"), folder)


def test_write_protection_is_respected(folder, no_work, monkeypatch):
    Path("x.mtx").write_text("precious")
    Path("x.mtx").chmod(0o444)
    if os.geteuid() == 0:  # root may write to it all the same
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert "write-protected" in refused("solve A.mtx -o x.mtx", folder)


def test_the_default_targets_are_checked_too(folder, no_work, monkeypatch):
    monkeypatch.setenv("ROUNDWISE_CACHE", str(folder / "b.mtx" / "cache"))
    assert "b.mtx is no folder" in refused("calibrate", folder)
    Path("out").write_text("a file")
    assert "out" in refused("reproduce dense --cache cache", folder)


def test_fill_tries_to_write_before_it_computes(tmp_path, monkeypatch):
    def work(*args, **kwargs):
        raise AssertionError("this is work")

    table = OutcomeTable(tmp_path / "t.sqlite")
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda path, **options: connect(f"file:{path}?mode=ro", uri=True, **options),
    )
    monkeypatch.setattr("roundwise.outcomes.filling.evaluate", work)
    with pytest.raises(OutcomeTableError, match="cannot be written; give write permission"):
        fill(table, rw.GmresIR.paper(), [SYSTEM], [FP64])


def test_a_read_only_table_that_is_complete_is_enough(folder, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda path, **options: connect(f"file:{path}?mode=ro", uri=True, **options),
    )
    table = OutcomeTable("p.sqlite")
    assert fill(table, rw.GmresIR.paper(), [SYSTEM], [FP64]) == 0


# Whole or not at all


def test_a_write_that_fails_leaves_the_old_file(folder, monkeypatch):
    Path("x.mtx").write_text("old")

    def broken(path, X):
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("roundwise.commands.solve.write_matrix_market", broken)
    before = content(folder)
    assert "No space left" in fail(1, "solve", "A.mtx", "b.mtx", "-o", "x.mtx")
    assert content(folder) == before
    assert not list(folder.glob(".roundwise-*"))


def test_pipes_are_written_to(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with outputs.replacing(outputs.writable_file(pipe)) as target:
        target.write_bytes(b"through")
    assert os.read(end, 100) == b"through"
    os.close(end)
    assert not pipe.is_file()


def test_a_failed_merge_leaves_no_new_table(folder):
    Path("notes.txt").write_text("no table\n" * 100)
    before = content(folder)
    assert "no outcome table" in fail(1, "merge", "all.sqlite", "p.sqlite", "notes.txt")
    assert content(folder) == before
    Path("all.sqlite").touch()  # somebody's
    fail(1, "merge", "all.sqlite", "notes.txt")
    assert Path("all.sqlite").exists()


def test_a_merge_that_fails_later_keeps_what_was_taken_over(folder):
    contradicting = OutcomeTable("q.sqlite")
    contradicting.merge(["p.sqlite"])
    with sqlite3.connect("q.sqlite") as connection:
        connection.execute("UPDATE outcome SET nbe = 1.0")
    connection.close()
    assert "contradicts" in fail(1, "merge", "all.sqlite", "p.sqlite", "q.sqlite")
    assert OutcomeTable("all.sqlite").digest() == OutcomeTable("p.sqlite").digest()
