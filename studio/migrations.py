"""Changes of tables that people have already: in order, each once, each with its reason.

A function here is never edited once it was released, and its name never changes: databases remember
it. What it does to old tables, `studio.tables` says of new ones. Statements are plain SQL that
SQLite and PostgreSQL both take.
"""

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Engine, insert, inspect, select, text

from studio.tables import Base, MigrationRow, PictureRow

Migration = Callable[[Connection], None]


def m001_steps_predicted(connection: Connection) -> None:
    """With the step cache a picture has steps that were predicted; before it none had."""
    connection.execute(
        text("ALTER TABLE pictures ADD COLUMN steps_predicted INTEGER DEFAULT 0 NOT NULL")
    )


MIGRATIONS: tuple[Migration, ...] = (m001_steps_predicted,)


def migrate(engine: Engine, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Create the tables, or bring old ones up to date: all of it or nothing.

    Raises `SQLAlchemyError`.
    """
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            # Python's driver begins a transaction for rows by itself, but not for tables.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        is_new = not inspect(connection).has_table(PictureRow.__tablename__)
        Base.metadata.create_all(connection)
        applied = set(connection.scalars(select(MigrationRow.name)))
        for migration in migrations:
            if migration.__name__ in applied:
                continue
            if not is_new:
                migration(connection)
            values = {"name": migration.__name__, "applied_at": time.time()}
            connection.execute(insert(MigrationRow).values(values))
