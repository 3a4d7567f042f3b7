"""Migrations: the database's schema as the steps that lead to it. A released step is never changed.

All steps work with SQLite 3.25, the version of the oldest supported systems.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its statements and its record are applied in one transaction."""

    version: int
    name: str
    statements: tuple[str, ...]


#: Condition on the keys of runs in fresh sessions; an index has only these.
IS_OF_FRESH_SESSION = "idempotency_key GLOB ' *'"  # `execution_rows` puts the space there

RECORD_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
)
"""

MIGRATIONS = (
    Migration(
        1,
        "sessions, executions and their logs",
        (
            """
            CREATE TABLE sessions (
                id TEXT PRIMARY KEY,
                server TEXT NOT NULL,
                ended INTEGER NOT NULL,
                created_at TEXT NOT NULL,
                ended_at REAL,
                record TEXT NOT NULL
            )
            """,
            "CREATE INDEX sessions_by_server ON sessions (server) WHERE NOT ended",
            """
            CREATE TABLE executions (
                id TEXT PRIMARY KEY,
                session_id TEXT NOT NULL,
                owner TEXT NOT NULL,
                server TEXT NOT NULL,
                finished INTEGER NOT NULL,
                accepted_at REAL NOT NULL,
                finished_at REAL,
                idempotency_key TEXT,
                request_hash TEXT,
                log_bytes INTEGER NOT NULL DEFAULT 0,
                last_seq INTEGER NOT NULL DEFAULT 0,
                end_offset INTEGER NOT NULL DEFAULT 0,
                record TEXT NOT NULL
            )
            """,
            "CREATE INDEX executions_by_session ON executions (session_id, accepted_at)",
            "CREATE INDEX executions_by_server ON executions (server) WHERE NOT finished",
            "CREATE INDEX executions_by_end ON executions (finished_at) WHERE finished",
            """
            CREATE UNIQUE INDEX executions_by_key ON executions (owner, session_id, idempotency_key)
            WHERE idempotency_key IS NOT NULL
            """,
            """
            CREATE TABLE event_offsets (
                execution_id TEXT NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
                seq INTEGER NOT NULL,
                offset INTEGER NOT NULL,
                PRIMARY KEY (execution_id, seq)
            ) WITHOUT ROWID
            """,
        ),
    ),
    Migration(
        2,
        "tokens",
        (
            """
            CREATE TABLE tokens (
                id TEXT PRIMARY KEY,
                parent_id TEXT REFERENCES tokens (id) ON DELETE CASCADE,
                owner TEXT NOT NULL,
                secret_hash BLOB NOT NULL,
                created_at REAL NOT NULL,
                expires_at REAL NOT NULL,
                revoked_at REAL,
                last_used_at REAL,
                record TEXT NOT NULL
            )
            """,
            # Without it the deletion of a token would read all tokens for its children (ON DELETE CASCADE).
            "CREATE INDEX tokens_by_parent ON tokens (parent_id)",
        ),
    ),
    Migration(
        3,
        "spooled output",
        ("ALTER TABLE executions ADD COLUMN spool_bytes INTEGER NOT NULL DEFAULT 0",),
    ),
    Migration(
        4,
        "rotation of tokens, and what was seen of their end",
        (
            "ALTER TABLE tokens ADD COLUMN previous_hash BLOB",
            "ALTER TABLE tokens ADD COLUMN previous_until REAL",
            "ALTER TABLE tokens ADD COLUMN expired_at REAL",
            "CREATE INDEX tokens_by_owner ON tokens (owner)",
        ),
    ),
    Migration(
        5,
        "audit trail",
        (
            "CREATE TABLE audit (seq INTEGER PRIMARY KEY, record TEXT NOT NULL, digest TEXT NOT NULL)",
            """
            CREATE TABLE audit_ends (
                only INTEGER PRIMARY KEY CHECK (only = 1),
                first_seq INTEGER NOT NULL,
                first_previous TEXT NOT NULL,
                last_seq INTEGER NOT NULL,
                last_digest TEXT NOT NULL
            )
            """,
            "INSERT INTO audit_ends VALUES (1, 1, hex(zeroblob(32)), 0, hex(zeroblob(32)))",  # digest_chain.GENESIS
        ),
    ),
    Migration(
        6,
        "short logs in the rows of their executions",
        ("ALTER TABLE executions ADD COLUMN log BLOB",),  # NULL where there is a file
    ),
    Migration(
        7,
        "keys of runs in sessions of their own",
        (
            f"""
            CREATE UNIQUE INDEX executions_by_fresh_key ON executions (owner, idempotency_key)
            WHERE {IS_OF_FRESH_SESSION}
            """,
        ),
    ),
    Migration(
        8,
        "sizes of rows and files, and whose they are",
        (
            # NULL in rows of earlier versions, because a rewrite of all rows would take long.
            "ALTER TABLE executions ADD COLUMN row_bytes INTEGER",
            "ALTER TABLE executions ADD COLUMN file_bytes INTEGER",
            "ALTER TABLE sessions ADD COLUMN owner TEXT NOT NULL DEFAULT 'owner'",
            "ALTER TABLE sessions ADD COLUMN row_bytes INTEGER",
            """
            UPDATE sessions SET owner = json_extract(record, '$.owner')
            WHERE json_valid(record) AND json_type(record, '$.owner') = 'text'
            """,
            # The indexes have all columns that `measure` reads, so that it reads no row with a log.
            """
            CREATE INDEX executions_by_owner ON executions
            (owner, finished, finished_at, id, session_id, row_bytes, file_bytes, log_bytes, spool_bytes)
            """,
            "CREATE INDEX sessions_by_owner ON sessions (owner, ended, ended_at, id, row_bytes)",
        ),
    ),
    Migration(
        9,
        "kernels granted to tokens",
        (
            """
            CREATE TABLE kernel_grants (
                id TEXT PRIMARY KEY,
                token_id TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
                server TEXT NOT NULL,
                ended INTEGER NOT NULL,
                record TEXT NOT NULL
            )
            """,
            "CREATE INDEX kernel_grants_by_token ON kernel_grants (token_id)",  # for ON DELETE CASCADE
        ),
    ),
    Migration(
        10,
        "executions that a pool of servers has accepted",
        (
            """
            CREATE TABLE accepted_executions (
                id TEXT PRIMARY KEY,
                session_id TEXT NOT NULL,
                server TEXT NOT NULL,
                principal TEXT NOT NULL,
                idempotency_key TEXT NOT NULL,
                accepted_at REAL NOT NULL
            )
            """,
            """
            CREATE INDEX accepted_executions_by_key ON accepted_executions (principal, session_id, idempotency_key)
            WHERE idempotency_key != ''
            """,
            "CREATE INDEX accepted_executions_by_age ON accepted_executions (accepted_at)",
        ),
    ),
    Migration(
        11,
        "JupyterHub tokens, and the tokens that were created in their names",
        (
            "ALTER TABLE tokens ADD COLUMN hub_token TEXT",  # a digest; NULL without one
            "CREATE INDEX tokens_by_hub_token ON tokens (hub_token)",
        ),
    ),
    Migration(
        12,
        "secrets that the egress proxy adds to requests",
        ("CREATE TABLE secrets (name TEXT PRIMARY KEY, record TEXT NOT NULL, sealed BLOB NOT NULL)",),
    ),
    Migration(
        13,
        "shares of the store that policies give to tokens",
        (
            """
            CREATE TABLE stored_shares (
                principal TEXT PRIMARY KEY,
                share_bytes INTEGER NOT NULL,
                set_at REAL NOT NULL
            )
            """,
        ),
    ),
)
