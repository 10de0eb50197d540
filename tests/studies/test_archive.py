"""The release file: packed, checked, replayed without solving; damaged ones are refused."""

import io
import json
import tarfile

import pytest
from command_line import fail, succeed

from roundwise_studies import archive
from roundwise_studies.protocol import reproduce
from roundwise_studies.simulated import Settings, SimulatedStudy

SLICE = Settings(systems=4, seeds=2, sizes=(12, 20), episodes=10)
STUDY = SimulatedStudy(SLICE, ("dense", "pde", "ablation"))


@pytest.fixture(scope="module")
def packed(results, cache, tmp_path_factory):
    file = tmp_path_factory.mktemp("release") / "outcomes.tar.xz"
    archive.pack(cache, SLICE, STUDY.experiments, file)
    return file


def test_a_replay_solves_nothing_and_gives_the_same(results, packed, tmp_path, monkeypatch):
    manifest = archive.unpack(packed, tmp_path)
    assert archive.settings_of(manifest) == SLICE
    assert set(manifest["facts"]) == {"dense", "pde"}

    def no_systems(*_, **__):
        raise AssertionError("a system was made")

    monkeypatch.setattr("roundwise_studies.simulated.gather.make", no_systems)
    monkeypatch.setattr("roundwise_studies.simulated.sets.make", no_systems)
    again = reproduce(SimulatedStudy(SLICE, STUDY.experiments, replay=True), tmp_path)
    for name, result in again.items():
        assert result.gathered.computed == 0
        for old, new in zip(results[name].cases, result.cases, strict=True):
            assert (old.chosen == new.chosen).all()
            assert (old.rewards == new.rewards).all()
    assert again["pde"].gathered.draws == results["pde"].gathered.draws


def test_the_same_outcomes_have_the_same_digests(packed, cache, tmp_path):
    other = archive.pack(cache, SLICE, STUDY.experiments, tmp_path / "again.tar.xz")
    assert other["facts"] == archive.unpack(packed, tmp_path)["facts"]
    assert archive.file_digest(packed) == archive.file_digest(tmp_path / "again.tar.xz")


def rewritten(packed, to, change):
    """The archive with some of its files changed; None leaves one out."""
    with tarfile.open(packed) as old, tarfile.open(to, "w:xz") as new:
        for member in old.getmembers():
            content = change(member.name, old.extractfile(member).read())
            if content is not None:
                member.size = len(content)
                new.addfile(member, io.BytesIO(content))
    return to


def manifest_with(**changes):
    def change(name, content):
        if name != archive.MANIFEST:
            return content
        return json.dumps({**json.loads(content), **changes}).encode()

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda name, c: c + b" " if name.endswith("-sets.json") else c, "not what its manifest"),
        (lambda name, c: None if name == archive.MANIFEST else c, "no release file"),
        (lambda name, c: None if name == "pde.sqlite" else c, "no release file"),
        (lambda name, c: b"{" if name == archive.MANIFEST else c, "no release file"),
        (manifest_with(schema_version=9), "schema version 9"),
        (manifest_with(files={"../x": ""}), "files ../x"),
        (manifest_with(facts={"dense": "0"}), "the facts of dense"),
    ],
)
def test_other_files_are_refused(packed, tmp_path, change, words):
    file = rewritten(packed, tmp_path / "other.tar.xz", change)
    with pytest.raises(archive.ArchiveError, match=words):
        archive.unpack(file, tmp_path)


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "x.tar.xz").write_bytes(b"no archive")
    with pytest.raises(archive.ArchiveError, match="download it again"):
        archive.unpack(tmp_path / "x.tar.xz", tmp_path)


def test_the_command(packed, tmp_path):
    out = tmp_path / "out"
    text = succeed("reproduce", "pde", "--replay", packed, "--seeds", 1, "--out", out)
    assert "experiments (pde)" in text
    assert json.loads((out / "results.json").read_text())["settings"]["seeds"] == 1
    words = fail(2, "reproduce", "pde", "--replay", packed, "--systems", 3)
    assert "the file says" in words
    assert "simulated" in fail(2, "reproduce", "native", "--replay", packed)
