-- Leases that come back, appends that do not wait for each other's rows, and attempts that count
-- failures only.
--
-- `renew_node` and `acquire` stay: nodes of the version before call them until they are restarted.

ALTER TABLE haptera.session ADD COLUMN lease_request text;
COMMENT ON COLUMN haptera.session.lease_request IS 'The call that acquired the lease; it may arrive more than once.';

-- Prolong the row of a node. `p_digest` is of the epochs that it believes to hold; what it has in the
-- database comes back only if that differs, and the node gives back what it does not use.
CREATE FUNCTION haptera.renew_leases(
  p_owner text, p_node text, p_process text, p_seconds double precision, p_digest text,
  OUT now_timeline bigint, OUT held text[], OUT epochs bigint[]
) LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
DECLARE
  present text;
BEGIN
  PERFORM haptera.act_for(p_owner);
  INSERT INTO haptera.node AS n (id, process, until)
    VALUES (p_node, p_process, clock_timestamp() + p_seconds * interval '1 second')
    ON CONFLICT (id) DO UPDATE SET until = excluded.until;
  IF p_digest = '' THEN
    -- Nodes that were killed leave their rows behind.
    DELETE FROM haptera.node WHERE until < clock_timestamp() - interval '1 day';
  END IF;
  now_timeline := haptera.timeline();
  SELECT coalesce(encode(sha256(convert_to(
      string_agg(epoch::text, ',' ORDER BY epoch), 'UTF8'
    )), 'hex'), '') INTO present
    FROM haptera.session
    WHERE lease_node = p_node AND (p_owner IS NULL OR owner = p_owner);
  IF present <> p_digest THEN
    SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(epoch), '{}') INTO held, epochs
      FROM haptera.session
      WHERE lease_node = p_node AND (p_owner IS NULL OR owner = p_owner);
  END IF;
END
$$;

-- `p_request` names the call. One that arrives again, or late, gets the lease that it has already,
-- and does not fence its own holder.
CREATE FUNCTION haptera.acquire_lease(
  p_owner text, p_id text, p_holder text, p_node text, p_request text, p_lost bigint,
  p_ticket bigint, p_pass_over double precision,
  OUT verdict text, OUT new_epoch bigint, OUT holder text, OUT node text, OUT process text
) LANGUAGE plpgsql
SET lock_timeout = '200ms'
AS $$
DECLARE
  s haptera.session;
  alive boolean;
BEGIN
  PERFORM haptera.act_for(p_owner);
  PERFORM haptera.session_key(p_owner, p_id);
  -- Not waited for in a thread of the node, which has other sessions to serve.
  SELECT * INTO s FROM haptera.session
    WHERE id = p_id AND (p_owner IS NULL OR owner = p_owner) FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    verdict := CASE
      WHEN EXISTS (
        SELECT FROM haptera.session WHERE id = p_id AND (p_owner IS NULL OR owner = p_owner)
      ) THEN 'locked'
      ELSE 'foreign'
    END;
    RETURN;
  END IF;
  IF p_ticket IS NOT NULL THEN
    UPDATE haptera.waiter SET seen = clock_timestamp()
      WHERE ticket = p_ticket AND (p_owner IS NULL OR owner = p_owner);
  END IF;
  IF s.lease_holder = p_holder AND s.lease_node = p_node THEN
    verdict := 'granted';
    IF s.lease_request = p_request AND s.epoch >> 40 = haptera.timeline() THEN
      new_epoch := s.epoch;
      RETURN;
    END IF;
  ELSE
    SELECT n.process INTO process FROM haptera.node n WHERE n.id = s.lease_node;
    SELECT count(*) > 0 INTO alive FROM haptera.node n
      WHERE n.id = s.lease_node AND n.until > clock_timestamp();
    -- `p_lost` is the epoch of a lease that the caller has found to be used by none.
    IF s.lease_holder IS NOT NULL AND alive AND s.epoch IS DISTINCT FROM p_lost
       AND s.epoch >> 40 = haptera.timeline() THEN
      verdict := 'busy';
      new_epoch := s.epoch;
      holder := s.lease_holder;
      node := s.lease_node;
      RETURN;
    END IF;
    IF EXISTS (
      SELECT FROM haptera.waiter w
      WHERE w.session = s.key AND (p_owner IS NULL OR w.owner = p_owner)
        AND w.seen > clock_timestamp() - p_pass_over * interval '1 second'
        AND (p_ticket IS NULL OR w.ticket < p_ticket)
    ) THEN
      verdict := 'line';
      RETURN;
    END IF;
    verdict := 'granted';
  END IF;
  new_epoch := haptera.timeline() << 40 | nextval('haptera.epoch');
  UPDATE haptera.session
    SET epoch = new_epoch, lease_holder = p_holder, lease_node = p_node, lease_request = p_request
    WHERE key = s.key;
  DELETE FROM haptera.waiter
    WHERE ticket = p_ticket AND (p_owner IS NULL OR owner = p_owner);
END
$$;

-- Release a lease; false when its row is another transaction's for now.
CREATE FUNCTION haptera.release_lease(p_owner text, p_id text, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  found_key bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  SELECT key INTO found_key FROM haptera.session
    WHERE id = p_id AND epoch = p_epoch AND (p_owner IS NULL OR owner = p_owner)
    FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    UPDATE haptera.session SET lease_holder = NULL, lease_node = NULL, lease_request = NULL
      WHERE key = found_key;
    RETURN true;
  END IF;
  RETURN NOT EXISTS (
    SELECT FROM haptera.session
    WHERE id = p_id AND epoch = p_epoch AND lease_holder IS NOT NULL
      AND (p_owner IS NULL OR owner = p_owner)
  );
END
$$;

-- A command that was consumed is no failure: attempts are counted anew after it, as after the end of
-- a query.
CREATE OR REPLACE FUNCTION haptera.append(
  p_owner text, p_again boolean,
  a_session text[], a_epoch bigint[], a_holder text[], a_first bigint[],
  e_place integer[], e_seq bigint[], e_id text[], e_kind text[], e_time bigint[], e_rests boolean[],
  e_body bytea[],
  f_place integer[], f_seq bigint[], f_fields text[],
  c_place integer[], c_id text[]
) RETURNS TABLE (place integer, verdict text, holder text) LANGUAGE plpgsql
-- Planning for the values of each call costs more than the call, and a plan that was made while the
-- tables were small must not read them whole later.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
-- Ends with the function, so nothing stays on a connection that a pooler shares.
SET lock_timeout = '200ms'
AS $$
DECLARE
  verdicts text[];
  keys bigint[];
  heads bigint[];
  holders text[];
  locked bigint[];
  current_timeline bigint;
  f record;
BEGIN
  PERFORM haptera.act_for(p_owner);
  -- A session whose row another transaction has leaves the group: the others must not wait for it.
  -- An append that is alone waits until `lock_timeout`.
  IF cardinality(a_session) = 1 THEN
    SELECT array_agg(x.key) INTO locked FROM (
      SELECT s.key FROM haptera.session s
      WHERE s.id = a_session[1] AND (p_owner IS NULL OR s.owner = p_owner) FOR UPDATE
    ) x;
  ELSE
    -- In one order, so that two processes never wait for each other.
    SELECT array_agg(x.key) INTO locked FROM (
      SELECT s.key FROM haptera.session s
      WHERE s.id = ANY (a_session) AND (p_owner IS NULL OR s.owner = p_owner)
      ORDER BY s.id FOR UPDATE SKIP LOCKED
    ) x;
  END IF;
  locked := coalesce(locked, '{}');
  current_timeline := haptera.timeline();
  WITH asked AS (
    SELECT a.n, a.first, s.key, s.head, s.lease_holder,
      coalesce(
        s.epoch = a.epoch AND s.lease_holder = a.holder AND a.epoch >> 40 = current_timeline, false
      ) AS newest
    FROM unnest(a_session, a_epoch, a_holder, a_first) WITH ORDINALITY
      AS a (session, epoch, holder, first, n)
    LEFT JOIN haptera.session s
      ON s.id = a.session AND (p_owner IS NULL OR s.owner = p_owner)
  ), compared AS (
    SELECT q.n,
      bool_or(coalesce(y.seq <> e.seq, e.seq <= q.head)) AS clashes,
      bool_and(coalesce(y.seq = e.seq, false)) AS stored
    FROM asked q
    JOIN unnest(e_place, e_seq, e_id) AS e (n, seq, id) ON e.n = q.n
    LEFT JOIN haptera.entry y
      ON y.session = q.key AND y.id = e.id AND (p_owner IS NULL OR y.owner = p_owner)
    GROUP BY q.n
  )
  SELECT
    array_agg(
      CASE
        WHEN q.key IS NOT NULL AND q.key <> ALL (locked) THEN 'locked'
        -- The answer to the first attempt was lost, and the session taken over since.
        WHEN NOT q.newest AND p_again AND c.stored THEN 'stored'
        WHEN NOT q.newest THEN 'fenced'
        WHEN q.first NOT BETWEEN 1 AND q.head + 1 THEN 'gap'
        WHEN c.clashes THEN 'clash'
        ELSE 'appended'
      END ORDER BY q.n
    ),
    array_agg(q.key ORDER BY q.n), array_agg(q.head ORDER BY q.n),
    array_agg(q.lease_holder ORDER BY q.n)
    INTO verdicts, keys, heads, holders
    FROM asked q LEFT JOIN compared c ON c.n = q.n;

  FOR f IN SELECT * FROM unnest(f_place, f_seq, f_fields::jsonb[]) AS x (n, seq, fields) LOOP
    CONTINUE WHEN verdicts[f.n] <> 'appended' OR f.seq <= heads[f.n];
    BEGIN
      UPDATE haptera.session s SET
        owner = CASE WHEN c ? 'owner' THEN c ->> 'owner' ELSE s.owner END,
        project = CASE WHEN c ? 'project' THEN c ->> 'project' ELSE s.project END,
        name = CASE WHEN c ? 'name' THEN c ->> 'name' ELSE s.name END,
        title = CASE WHEN c ? 'title' THEN c ->> 'title' ELSE s.title END,
        model = CASE WHEN c ? 'model' THEN c ->> 'model' ELSE s.model END,
        parent = CASE WHEN c ? 'parent' THEN c ->> 'parent' ELSE s.parent END,
        native_session_id = CASE WHEN c ? 'native_session_id'
          THEN c ->> 'native_session_id' ELSE s.native_session_id END,
        created = CASE WHEN c ? 'created' THEN (c ->> 'created')::bigint ELSE s.created END,
        details = haptera.changed_details(s.details, f.fields)
        FROM (SELECT f.fields -> 'columns' AS c) x
        WHERE s.key = keys[f.n];
      IF p_owner IS NULL AND f.fields -> 'columns' ? 'owner' THEN
        UPDATE haptera.command SET owner = f.fields -> 'columns' ->> 'owner'
          WHERE session = keys[f.n];
        UPDATE haptera.blob SET owner = f.fields -> 'columns' ->> 'owner'
          WHERE session = keys[f.n];
      END IF;
    EXCEPTION WHEN unique_violation THEN
      verdicts[f.n] := 'name';
    END;
  END LOOP;

  INSERT INTO haptera.entry (session, seq, epoch, owner, id, kind, body)
    SELECT s.key, e.seq, a_epoch[e.n], s.owner, e.id, e.kind, e.body
    FROM unnest(e_place, e_seq, e_id, e_kind, e_body) AS e (n, seq, id, kind, body)
    JOIN haptera.session s ON s.key = keys[e.n] AND (p_owner IS NULL OR s.owner = p_owner)
    WHERE verdicts[e.n] = 'appended' AND e.seq > heads[e.n];

  UPDATE haptera.command c SET body = NULL
    FROM unnest(c_place, c_id) AS x (n, id)
    WHERE verdicts[x.n] = 'appended' AND c.session = keys[x.n] AND c.id = x.id
      AND (p_owner IS NULL OR c.owner = p_owner);

  UPDATE haptera.session s SET attempts = 0
    WHERE s.attempts > 0 AND (p_owner IS NULL OR s.owner = p_owner) AND s.key IN (
      SELECT keys[c.n] FROM unnest(c_place) AS c (n) WHERE verdicts[c.n] = 'appended'
    );

  UPDATE haptera.session s SET
    head = g.head, updated = g.time,
    query_open = coalesce(g.query_open, s.query_open),
    query_rests = coalesce(g.query_rests, s.query_rests),
    inputs_waiting = s.inputs_waiting + g.inputs,
    attempts = CASE WHEN g.query_open IS FALSE THEN 0 ELSE s.attempts END
    FROM (
      SELECT e.n, max(e.seq) AS head, (array_agg(e.time ORDER BY e.seq DESC))[1] AS time,
        (array_agg(e.kind = 'query.started' ORDER BY e.seq DESC)
          FILTER (WHERE e.kind IN ('query.started', 'query.ended')))[1] AS query_open,
        (array_agg(e.rests ORDER BY e.seq DESC)
          FILTER (WHERE e.kind IN ('query.started', 'query.ended')))[1] AS query_rests,
        count(*) FILTER (WHERE e.kind = 'input.queued')
          - count(*) FILTER (WHERE e.kind IN ('input.promoted', 'input.drained')) AS inputs
      FROM unnest(e_place, e_seq, e_kind, e_time, e_rests) AS e (n, seq, kind, time, rests)
      WHERE verdicts[e.n] = 'appended' AND e.seq > heads[e.n]
      GROUP BY e.n
    ) g
    WHERE s.key = keys[g.n] AND (p_owner IS NULL OR s.owner = p_owner);

  RETURN QUERY SELECT x.n::integer, verdicts[x.n], holders[x.n]
    FROM generate_subscripts(verdicts, 1) AS x (n);
END
$$;

-- A new command is new work, also for a session that was given up.
CREATE OR REPLACE FUNCTION haptera.put_command(
  p_owner text, p_id text, p_command text, p_body bytea
) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '2s'
AS $$
DECLARE
  found_key bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  -- Not made: a command for a session that was just deleted must not bring it back.
  SELECT key INTO found_key FROM haptera.session
    WHERE id = p_id AND (p_owner IS NULL OR owner = p_owner);
  INSERT INTO haptera.command (session, owner, id, body)
    SELECT s.key, s.owner, p_command, p_body FROM haptera.session s WHERE s.key = found_key
    ON CONFLICT (session, id) DO NOTHING;
  IF FOUND THEN
    UPDATE haptera.session SET attempts = 0, resume_after = '-infinity' WHERE key IN (
      SELECT key FROM haptera.session WHERE key = found_key AND attempts > 0
        FOR UPDATE SKIP LOCKED
    );
  END IF;
  RETURN found_key IS NOT NULL;
END
$$;

-- They change the row of a session, too, and keep a connection only for a moment when it is locked.
ALTER FUNCTION haptera.delete_session(text, text) SET lock_timeout = '2s';
ALTER FUNCTION haptera.index_texts(
  text, bigint, bigint, bigint, bigint[], text[], text[], text[], text[]
) SET lock_timeout = '2s';
