"""Databases that people have already: opened as they are, changed once, all of it or nothing."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from pipelines.cache_rules import OFF
from studio.library import Library
from studio.migrations import MIGRATIONS, migrate
from tests.studio.test_library import encoded, record_of

# What the first release wrote, word for word; it had no record of migrations.
FIRST_RELEASE = """
CREATE TABLE jobs (
    id VARCHAR(32) NOT NULL, owner VARCHAR(64) NOT NULL, origin VARCHAR(16) NOT NULL,
    status VARCHAR(16) NOT NULL, attempts INTEGER NOT NULL, request JSON NOT NULL,
    warnings JSON NOT NULL, created_at DOUBLE NOT NULL, started_at DOUBLE, finished_at DOUBLE,
    error_code VARCHAR(64), error_message VARCHAR, client JSON NOT NULL, PRIMARY KEY (id)
);
CREATE INDEX ix_jobs_status ON jobs (status);
CREATE TABLE pictures (
    number INTEGER NOT NULL, id VARCHAR(32) NOT NULL, job_id VARCHAR(32) NOT NULL,
    owner VARCHAR(64) NOT NULL, "index" INTEGER NOT NULL, seed INTEGER NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, format VARCHAR(8) NOT NULL,
    steps_run INTEGER NOT NULL, created_at DOUBLE NOT NULL, request JSON NOT NULL,
    PRIMARY KEY (number), UNIQUE (id)
);
CREATE INDEX ix_pictures_job_id ON pictures (job_id);
CREATE INDEX pictures_by_owner ON pictures (owner, number);
"""
REQUEST = {
    "model": "tiny",
    "prompt": "an old apple",
    "width": 256,
    "height": 192,
    "steps": 6,
    "steps_to_run": 6,
    "guidance_scale": 3.0,
    "true_cfg_scale": 1.0,
    "seed": 7,
    "count": 1,
    "output_format": "jpeg",
    "quality": 90,
    "negative_prompt": None,
    "secondary_prompt": None,
    "secondary_negative_prompt": None,
    "has_source": False,
    "strength": 1.0,
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The folder of a studio of the first release: one picture made, one job that waits."""
    with sqlite3.connect(tmp_path / "studio.db") as database:
        database.executescript(FIRST_RELEASE)
        request = json.dumps(REQUEST)
        job = ("job-1", "me", "page", "queued", 0, request, "[]", 1.0, "{}")
        picture = (1, "picture-1", "job-0", "me", 0, 7, 256, 192, "jpeg", 6, 1.0, request)
        columns = "id, owner, origin, status, attempts, request, warnings, created_at, client"
        database.execute(f"INSERT INTO jobs ({columns}) VALUES ({', '.join('?' * 9)})", job)
        database.execute(f"INSERT INTO pictures VALUES ({', '.join('?' * 12)})", picture)
    database.close()
    return tmp_path


def columns_of(folder: Path) -> dict[str, set[Any]]:
    engine = create_engine(f"sqlite:///{folder / 'studio.db'}")
    found = inspect(engine)
    tables = {
        table: {
            (column["name"], str(column["type"]), column["nullable"], column["default"])
            for column in found.get_columns(table)
        }
        for table in found.get_table_names()
    }
    engine.dispose()
    return tables


def test_a_database_of_the_first_release_goes_on(old: Path) -> None:
    library = Library(old)
    (picture,) = library.history("me", None, 10).pictures
    assert (picture.steps_run, picture.steps_computed, picture.steps_predicted) == (6, 6, 0)
    assert (picture.request.prompt, picture.request.cache) == ("an old apple", OFF)
    (waiting,) = library.unfinished_jobs()
    assert waiting.request.cache == OFF
    made = library.store_picture(record_of(), encoded())
    library.add_picture(made)
    library.close()
    again = Library(old)
    assert [kept.id for kept in again.history("me", None, 10).pictures] == [made.id, picture.id]
    assert again.picture(made.id, "me") == made
    again.close()


def test_old_tables_become_the_same_as_new_ones(old: Path, tmp_path: Path) -> None:
    (new := tmp_path / "new").mkdir()
    assert columns_of(old) != columns_of(new)
    for folder in (old, new):
        Library(folder).close()
    assert columns_of(old) == columns_of(new)


def test_each_migration_runs_once_and_never_on_new_tables(old: Path, tmp_path: Path) -> None:
    ran: list[str] = []

    def count(connection: Connection) -> None:
        ran.append(connection.engine.url.database or "")

    (new := tmp_path / "new").mkdir()
    for folder in (old, new, old, new):
        engine = create_engine(f"sqlite:///{folder / 'studio.db'}")
        migrate(engine, (*MIGRATIONS, count))
        engine.dispose()
    assert ran == [str(old / "studio.db")]


def test_a_migration_that_fails_leaves_all_as_it_was(old: Path) -> None:
    def break_off(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE pictures ADD COLUMN half INTEGER"))
        connection.execute(text("ALTER TABLE no_such_table ADD COLUMN other INTEGER"))

    before = columns_of(old)
    engine = create_engine(f"sqlite:///{old / 'studio.db'}")
    with pytest.raises(OperationalError):
        migrate(engine, (*MIGRATIONS, break_off))
    engine.dispose()
    assert columns_of(old) == before
    Library(old).close()


def test_the_order_of_migrations_is_that_of_their_names() -> None:
    names = [migration.__name__ for migration in MIGRATIONS]
    assert names == sorted(set(names))
