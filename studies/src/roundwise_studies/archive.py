"""The release file: the outcomes of the simulated experiments, to be replayed without solving.

    roundwise reproduce all --pack outcomes.tar.xz     # writes the file, prints its digest
    roundwise reproduce all --replay outcomes.tar.xz     # checks it, and replays Tables 2 to 9

A compressed tar archive with ``manifest.json`` (the settings, the files with the SHA-256 of each,
and the digest of the facts of each table), the outcome tables and the notes of their data sets. The
digest of a table does not depend on when, where and in which order its facts were computed, so that
two release files that know the same say so, though their bytes differ.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from roundwise import RoundwiseError
from roundwise.outcomes import OutcomeTable
from roundwise_studies.simulated.experiment import EXPERIMENTS, Settings

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
LARGEST = 4 * 2**30
"""Bytes that a file of an archive may have: a taste, far above ours; damaged ones may ask more."""


class ArchiveError(RoundwiseError):
    """A file that is no release file, is damaged, or holds something else than it says."""


def pack(cache: Path, settings: Settings, experiments: Sequence[str], file: Path) -> dict[str, Any]:
    """Write the outcomes of a run from its cache; returns the manifest."""
    sets = list(dict.fromkeys(EXPERIMENTS[name].data for name in experiments))
    manifest: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(settings),
        "experiments": list(experiments),
        "facts": {data: OutcomeTable(cache / f"{data}.sqlite").digest() for data in sets},
    }
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for data in sets:
            copy = Path(folder) / f"{data}.sqlite"
            with closing(sqlite3.connect(cache / copy.name)) as connection:
                connection.execute("VACUUM INTO ?", (str(copy),))
            files += [copy, cache / f"{data}-sets.json"]
        manifest["files"] = {path.name: _sha256(path) for path in files}
        text = json.dumps(manifest, indent=1) + "\n"
        with tarfile.open(file, "w:xz") as archive:
            _add(archive, MANIFEST, text.encode())
            for path in files:
                _add(archive, path.name, path.read_bytes())
    return manifest


def unpack(file: Path, folder: Path) -> dict[str, Any]:
    """Write the files of an archive into a folder, check them, and return the manifest."""
    try:
        with tarfile.open(file, "r:xz") as archive:
            manifest = _manifest(_read(archive, MANIFEST))
            for name, digest in manifest["files"].items():
                content = _read(archive, name)
                if hashlib.sha256(content).hexdigest() != digest:
                    raise ArchiveError(
                        f"{file}: {name} is not what its manifest says; download it again"
                    )
                (folder / name).write_bytes(content)
    except (tarfile.TarError, EOFError, OSError, KeyError, ValueError) as error:
        raise ArchiveError(
            f"{file}: no release file, or a damaged one ({error}); download it again"
        ) from error
    for data, digest in manifest["facts"].items():
        found = OutcomeTable(folder / f"{data}.sqlite", must_exist=True).digest()
        if found != digest:
            raise ArchiveError(f"{file}: the facts of {data} have the digest {found}, not {digest}")
    return manifest


def settings_of(manifest: Mapping[str, Any]) -> Settings:
    """The settings that the outcomes were computed with."""
    saved = manifest["settings"]
    return Settings(**{**saved, "taus": tuple(saved["taus"]), "sizes": tuple(saved["sizes"])})


def file_digest(file: Path) -> str:
    """SHA-256 of the file, to be published beside it."""
    return _sha256(file)


def _manifest(text: bytes) -> dict[str, Any]:
    found = json.loads(text)
    if found["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema version {found['schema_version']}, this reads {SCHEMA_VERSION}")
    sets = {experiment.data for experiment in EXPERIMENTS.values()}
    if not set(found["facts"]) <= sets:
        raise ValueError(f"data sets {', '.join(found['facts'])}")
    known = {name for data in sets for name in (f"{data}.sqlite", f"{data}-sets.json")}
    if not set(found["files"]) <= known:  # so no name leads out of the folder
        raise ValueError(f"files {', '.join(found['files'])}")
    return dict(found)


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.getmember(name)
    content = archive.extractfile(member)
    if content is None or member.size > LARGEST:
        raise ValueError(f"{name} is no file of at most {LARGEST} bytes")
    return content.read()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """With no time and no owner, so that the same content gives the same archive."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, BytesIO(content))


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
