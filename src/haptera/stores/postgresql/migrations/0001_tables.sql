-- The tables, and row-level security on every table that holds something of an owner.
--
-- No foreign keys: every write locks its session's row first, and `delete_session` knows all tables.
-- The row of a session changes with every append, so no index holds a column that an append changes.

CREATE TABLE haptera.node (
  id text COLLATE "C" PRIMARY KEY,
  process text NOT NULL,
  until timestamptz NOT NULL
);
COMMENT ON TABLE haptera.node IS 'Open stores. The leases of a node end when it no longer renews its row.';

CREATE TABLE haptera.session (
  key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL UNIQUE,
  owner text COLLATE "C",
  project text COLLATE "C",
  name text COLLATE "C",
  title text,
  model text NOT NULL DEFAULT '',
  parent text,
  native_session_id text,
  details jsonb NOT NULL DEFAULT '{}',
  created bigint NOT NULL DEFAULT 0,
  updated bigint NOT NULL DEFAULT 0,
  head bigint NOT NULL DEFAULT 0,
  indexed bigint NOT NULL DEFAULT 0,
  epoch bigint NOT NULL DEFAULT 0,
  lease_holder text,
  lease_node text COLLATE "C",
  query_open boolean NOT NULL DEFAULT false,
  query_rests boolean NOT NULL DEFAULT false,
  inputs_waiting integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  resume_after timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX session_name ON haptera.session (owner, project, name) WHERE name IS NOT NULL;
CREATE INDEX session_owner ON haptera.session (owner, project);
CREATE INDEX session_node ON haptera.session (lease_node) WHERE lease_node IS NOT NULL;
CREATE INDEX session_unfinished ON haptera.session (owner) WHERE query_open OR inputs_waiting > 0;
COMMENT ON COLUMN haptera.session.query_rests IS 'Whether the last query ended to wait for an approval.';
COMMENT ON COLUMN haptera.session.epoch IS 'The timeline of the server in the upper bits, a counter in the lower 40.';

CREATE SEQUENCE haptera.epoch;

CREATE TABLE haptera.entry (
  session bigint NOT NULL,
  seq bigint NOT NULL,
  epoch bigint NOT NULL,
  owner text COLLATE "C",
  id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (session, seq)
);
COMMENT ON COLUMN haptera.entry.epoch IS 'The lease under which it was appended.';
CREATE UNIQUE INDEX entry_id ON haptera.entry (session, id);

CREATE TABLE haptera.command (
  arrived bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session bigint NOT NULL,
  owner text COLLATE "C",
  id text COLLATE "C" NOT NULL,
  body bytea
);
CREATE UNIQUE INDEX command_id ON haptera.command (session, id);
CREATE INDEX command_pending ON haptera.command (session) WHERE body IS NOT NULL;

CREATE TABLE haptera.blob (
  session bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  owner text COLLATE "C",
  content bytea NOT NULL,
  PRIMARY KEY (session, name)
);

CREATE TABLE haptera.waiter (
  ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session bigint NOT NULL,
  owner text COLLATE "C",
  seen timestamptz NOT NULL
);
CREATE INDEX waiter_session ON haptera.waiter (session);

CREATE TABLE haptera.text (
  session bigint NOT NULL,
  seq bigint NOT NULL,
  owner text COLLATE "C",
  message_id text,
  part_id text,
  text text NOT NULL,
  words tsvector NOT NULL,
  PRIMARY KEY (session, seq)
);
CREATE INDEX text_words ON haptera.text USING gin (words);

-- The setting has a prefix: one that was never set, or was set in an earlier transaction, is empty,
-- and an owner may be called ''.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['session', 'entry', 'command', 'blob', 'waiter', 'text'] LOOP
    EXECUTE format('ALTER TABLE haptera.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format(
      'CREATE POLICY owner ON haptera.%I'
      ' USING (owner = substr(nullif(current_setting(''haptera.owner'', true), ''''), 3))', name);
  END LOOP;
END
$$;
