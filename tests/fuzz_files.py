"""Mutated files: what a bad disk, a foreign program or an editor can make of ours.

Everything follows from the `random.Random` that is passed: a failing case can be made again.
"""

import copy
import json
import re
import sqlite3
from contextlib import closing, suppress

HOSTILE = [
    None,
    True,
    -1,
    0,
    1e308,
    5e-324,
    -0.0,
    float("nan"),
    float("inf"),
    2**31,
    2**63,
    -(2**63) - 1,
    10**12,
    10**400,
    "",
    "zzz",
    "nan",
    "two\nlines",
    "\0",
    "\N{SNOWMAN}",
    [],
    {},
    [[]],
    [1, "a", None],
    {"class": "Tuner"},
]
"""Values to put where others belong."""

NUMBERS = [
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"-inf",
    b"null",
    b"9" * 5000,
    b"1000000000",
    b'"x"',
    b"[]",
]
"""What a number in a text becomes."""


def mutated_bytes(data, rng):
    """Bits flipped, chunks removed, doubled or swapped, the end cut off."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 16, 200))
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = data[at : at + length]
        elif kind == 4:
            data[at : at + length] = rng.randbytes(length)
        else:
            data[at:at] = data[: rng.randrange(len(data) + 1)]
    return bytes(data)


def mutated_text(data, rng):
    """Bytes mutated, or a number replaced, or a line lost, doubled or moved."""
    kind = rng.randrange(3)
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", data))
    if kind == 0 and numbers:
        at = rng.choice(numbers)
        return data[: at.start()] + rng.choice(NUMBERS) + data[at.end() :]
    lines = data.splitlines(keepends=True)
    if kind == 1 and lines:
        line = lines.pop(rng.randrange(len(lines)))
        for _ in range(rng.randrange(3)):
            lines.insert(rng.randrange(len(lines) + 1), line)
        return b"".join(lines)
    return mutated_bytes(data, rng)


def mutated_json(data, rng):
    """A JSON text with values replaced or nested, keys renamed or removed; or mutated text."""
    if rng.random() < 0.25:
        return mutated_text(data, rng)
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _mutated_value(value, rng)
    return json.dumps(value).encode()


def _mutated_value(value, rng):
    children = list(value) if isinstance(value, dict) else list(range(_length(value)))
    if not children or rng.random() < 0.15:
        return _hostile(value, rng)
    key = rng.choice(children)
    kind = rng.randrange(12)
    if kind == 0:
        del value[key]
    elif kind == 1 and isinstance(value, dict):
        value[f"{key}x"] = value.pop(key)
    elif kind == 1:
        value.append(value[key])
    else:
        value[key] = _mutated_value(value[key], rng)
    return value


def _length(value):
    return len(value) if isinstance(value, list) else 0


def _hostile(value, rng):
    kind = rng.randrange(4)
    if kind == 0:
        return [value]
    if kind == 1 and isinstance(value, int | float):
        return rng.choice((-value, value * 2, value + 1, value * 10**9, str(value)))
    return copy.deepcopy(rng.choice(HOSTILE))  # later mutations change it


def mutate_database(path, rng):
    """Change an SQLite file in place: cells, rows, columns, tables, the header, or bytes."""
    if rng.random() < 0.25:
        path.write_bytes(mutated_bytes(path.read_bytes(), rng))
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for _ in range(rng.choice((1, 1, 2, 4))):
            # SQLite refuses some changes itself: a key twice, a column that an index needs.
            with suppress(sqlite3.DatabaseError, OverflowError):
                _change_database(connection, rng)
        with suppress(sqlite3.DatabaseError):
            connection.execute("PRAGMA journal_mode = DELETE")  # no log beside the file


def _change_database(connection, rng):
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    tables = [name for (name,) in found]
    if not tables:
        return
    table = rng.choice(tables)
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    column, kind = rng.choice(columns), rng.randrange(20)
    if kind == 0:
        connection.execute(f"DROP TABLE {table}")
    elif kind == 1:
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    elif kind == 2:
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}x")
    elif kind == 3:
        connection.execute(f"PRAGMA user_version = {rng.choice((-1, 0, 1, 3, 2**31 - 1))}")
    elif kind == 4:
        connection.execute(f"DELETE FROM {table}")
    elif kind == 5:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN extra")
    else:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        key = ", ".join(columns)
        row = connection.execute(
            f"SELECT {key} FROM {table} LIMIT 1 OFFSET {rng.randrange(max(count, 1))}"
        ).fetchone()
        if row is None:
            return
        same = " AND ".join(f"{name} IS ?" for name in columns)
        old = row[columns.index(column)]
        new = _cell(old, rng)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {same}", (new, *row))


def _cell(old, rng):
    if isinstance(old, str) and old[:1] in ("{", "[") and rng.random() < 0.7:
        with suppress(json.JSONDecodeError):  # an earlier mutation may have damaged it
            return mutated_json(old.encode(), rng).decode(errors="replace")
    value = rng.choice([*HOSTILE, b"\xff\xfe", "\ud7ff", "9" * 5000])
    return json.dumps(value) if isinstance(value, list | dict) else value
