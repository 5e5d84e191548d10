-- The writes, each as one function, so that a write is one round trip and one transaction.
--
-- A client that is stopped between two statements would keep its locks; here there are no two.
-- `p_owner` is the owner that the store is bound to, NULL for one that is bound to none.

CREATE FUNCTION haptera.act_for(p_owner text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_owner IS NOT NULL THEN
    PERFORM set_config('haptera.owner', 'o:' || p_owner, true);
  END IF;
END
$$;

-- The timeline of this server. It changes when a replica is promoted.
CREATE FUNCTION haptera.timeline() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
$$;

-- Return the key of a session; make its row if it has none. NULL when it is another owner's.
CREATE FUNCTION haptera.session_key(p_owner text, p_id text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  found_key bigint;
BEGIN
  FOR attempt IN 1..2 LOOP
    SELECT key INTO found_key FROM haptera.session
      WHERE id = p_id AND (p_owner IS NULL OR owner = p_owner);
    EXIT WHEN FOUND;
    INSERT INTO haptera.session (id, owner) VALUES (p_id, p_owner) ON CONFLICT (id) DO NOTHING;
  END LOOP;
  RETURN found_key;
END
$$;

CREATE FUNCTION haptera.renew_node(
  p_owner text, p_node text, p_process text, p_seconds double precision, p_held bigint,
  OUT now_timeline bigint, OUT held text[], OUT epochs bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  counted bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  INSERT INTO haptera.node AS n (id, process, until)
    VALUES (p_node, p_process, clock_timestamp() + p_seconds * interval '1 second')
    ON CONFLICT (id) DO UPDATE SET until = excluded.until;
  IF p_held = 0 THEN
    -- Nodes that were killed leave their rows behind.
    DELETE FROM haptera.node WHERE until < clock_timestamp() - interval '1 day';
  END IF;
  now_timeline := haptera.timeline();
  SELECT count(*) INTO counted FROM haptera.session
    WHERE lease_node = p_node AND (p_owner IS NULL OR owner = p_owner);
  -- The list is wanted only when it differs from what the node believes to hold.
  IF counted <> p_held THEN
    SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(epoch), '{}') INTO held, epochs
      FROM haptera.session
      WHERE lease_node = p_node AND (p_owner IS NULL OR owner = p_owner);
  END IF;
END
$$;

CREATE FUNCTION haptera.acquire(
  p_owner text, p_id text, p_holder text, p_node text, p_lost bigint, p_ticket bigint,
  p_pass_over double precision,
  OUT verdict text, OUT new_epoch bigint, OUT holder text, OUT process text
) LANGUAGE plpgsql AS $$
DECLARE
  s haptera.session;
  alive boolean;
BEGIN
  PERFORM haptera.act_for(p_owner);
  PERFORM haptera.session_key(p_owner, p_id);
  SELECT * INTO s FROM haptera.session
    WHERE id = p_id AND (p_owner IS NULL OR owner = p_owner) FOR UPDATE;
  IF NOT FOUND THEN
    verdict := 'foreign';
    RETURN;
  END IF;
  IF p_ticket IS NOT NULL THEN
    UPDATE haptera.waiter SET seen = clock_timestamp()
      WHERE ticket = p_ticket AND (p_owner IS NULL OR owner = p_owner);
  END IF;
  IF s.lease_holder = p_holder AND s.lease_node = p_node THEN
    verdict := 'granted';
  ELSE
    SELECT n.process INTO process FROM haptera.node n WHERE n.id = s.lease_node;
    SELECT count(*) > 0 INTO alive FROM haptera.node n
      WHERE n.id = s.lease_node AND n.until > clock_timestamp();
    -- `p_lost` is the epoch of a lease whose process the caller has found ended.
    IF s.lease_holder IS NOT NULL AND alive AND s.epoch IS DISTINCT FROM p_lost
       AND s.epoch >> 40 = haptera.timeline() THEN
      verdict := 'busy';
      new_epoch := s.epoch;
      holder := s.lease_holder;
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
  UPDATE haptera.session SET epoch = new_epoch, lease_holder = p_holder, lease_node = p_node
    WHERE key = s.key;
  DELETE FROM haptera.waiter
    WHERE ticket = p_ticket AND (p_owner IS NULL OR owner = p_owner);
END
$$;

CREATE FUNCTION haptera.join_line(p_owner text, p_id text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  found_key bigint;
  new_ticket bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  found_key := haptera.session_key(p_owner, p_id);
  DELETE FROM haptera.waiter
    WHERE session = found_key AND (p_owner IS NULL OR owner = p_owner)
      AND seen < clock_timestamp() - interval '1 hour';
  INSERT INTO haptera.waiter (session, owner, seen)
    SELECT s.key, s.owner, clock_timestamp() FROM haptera.session s WHERE s.key = found_key
    RETURNING ticket INTO new_ticket;
  RETURN new_ticket;
END
$$;

-- Return the details of a record after a change; a key of the metadata that is null is removed.
CREATE FUNCTION haptera.changed_details(p_details jsonb, p_fields jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT changed || CASE WHEN p_fields -> 'metadata' = '{}' THEN '{}' ELSE jsonb_build_object(
    'metadata',
    (coalesce(changed -> 'metadata', '{}') || (p_fields -> 'metadata'))
      - ARRAY(SELECT m.key FROM jsonb_each(p_fields -> 'metadata') m WHERE m.value = 'null')
  ) END
  FROM (
    SELECT CASE WHEN p_fields -> 'is_new' = 'true' THEN '{}' ELSE p_details END
      || (p_fields -> 'details') AS changed
  ) x
$$;

-- Append to several sessions, each once. What is wrong with one append concerns it alone.
--
-- a_*: one element per append. e_*: one per entry, `e_place` is the place of its append. f_*: what
-- the entries of an append change in the index, up to the entry `f_seq`. c_*: consumed commands.
CREATE FUNCTION haptera.append(
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
AS $$
DECLARE
  verdicts text[];
  keys bigint[];
  heads bigint[];
  holders text[];
  current_timeline bigint;
  f record;
BEGIN
  PERFORM haptera.act_for(p_owner);
  -- In one order, so that two processes never wait for each other.
  PERFORM 1 FROM haptera.session s
    WHERE s.id = ANY (a_session) AND (p_owner IS NULL OR s.owner = p_owner)
    ORDER BY s.id FOR UPDATE;
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

  UPDATE haptera.session s SET
    head = g.head, updated = g.time,
    query_open = coalesce(g.query_open, s.query_open),
    query_rests = coalesce(g.query_rests, s.query_rests),
    inputs_waiting = s.inputs_waiting + g.inputs,
    attempts = CASE WHEN g.query_open THEN s.attempts WHEN g.query_open IS NULL THEN s.attempts ELSE 0 END
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

-- Take sessions with work that no node carries on, and count the attempt: those with an unfinished
-- query or prompts that wait, and those that have commands. One that rests on an approval is left
-- alone until a command comes.
CREATE FUNCTION haptera.claim_unowned(
  p_owner text, p_limit integer, p_most integer, p_first double precision, p_longest double precision
) RETURNS TABLE (id text, owner text, project text, attempt integer) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM haptera.act_for(p_owner);
  RETURN QUERY
    UPDATE haptera.session s SET
      attempts = s.attempts + 1,
      resume_after = clock_timestamp()
        + least(p_longest, p_first * power(2, least(s.attempts, 30))) * interval '1 second'
    FROM (
      SELECT c.key FROM haptera.session c
      WHERE c.key IN (
          SELECT u.key FROM haptera.session u
          WHERE (u.query_open OR u.inputs_waiting > 0) AND NOT u.query_rests
            AND (p_owner IS NULL OR u.owner = p_owner)
          UNION
          SELECT m.session FROM haptera.command m
          WHERE m.body IS NOT NULL AND (p_owner IS NULL OR m.owner = p_owner)
        )
        AND (p_owner IS NULL OR c.owner = p_owner) AND c.head > 0
        AND c.attempts < p_most AND c.resume_after <= clock_timestamp()
        AND (
          c.lease_holder IS NULL
          OR c.epoch >> 40 <> haptera.timeline()
          OR NOT EXISTS (
            SELECT FROM haptera.node n WHERE n.id = c.lease_node AND n.until > clock_timestamp()
          )
        )
      ORDER BY c.resume_after LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) claimed
    WHERE s.key = claimed.key
    RETURNING s.id, s.owner, s.project, s.attempts;
END
$$;

CREATE FUNCTION haptera.delete_session(p_owner text, p_id text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  doomed bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  DELETE FROM haptera.session WHERE id = p_id AND (p_owner IS NULL OR owner = p_owner)
    RETURNING key INTO doomed;
  DELETE FROM haptera.entry WHERE session = doomed;
  DELETE FROM haptera.command WHERE session = doomed;
  DELETE FROM haptera.blob WHERE session = doomed;
  DELETE FROM haptera.waiter WHERE session = doomed;
  DELETE FROM haptera.text WHERE session = doomed;
END
$$;

CREATE FUNCTION haptera.put_command(p_owner text, p_id text, p_command text, p_body bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  found_key bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  found_key := haptera.session_key(p_owner, p_id);
  INSERT INTO haptera.command (session, owner, id, body)
    SELECT s.key, s.owner, p_command, p_body FROM haptera.session s WHERE s.key = found_key
    ON CONFLICT (session, id) DO NOTHING;
  RETURN found_key IS NOT NULL;
END
$$;

CREATE FUNCTION haptera.put_blob(p_owner text, p_id text, p_name text, p_content bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  found_key bigint;
BEGIN
  PERFORM haptera.act_for(p_owner);
  found_key := haptera.session_key(p_owner, p_id);
  INSERT INTO haptera.blob AS b (session, owner, name, content)
    SELECT s.key, s.owner, p_name, p_content FROM haptera.session s WHERE s.key = found_key
    ON CONFLICT (session, name) DO UPDATE SET content = excluded.content;
  RETURN found_key IS NOT NULL;
END
$$;

-- Store the texts of a session from one `seq` on, unless another process has done so meanwhile.
CREATE FUNCTION haptera.index_texts(
  p_owner text, p_key bigint, p_from bigint, p_through bigint,
  t_seq bigint[], t_message text[], t_part text[], t_text text[], t_words text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM haptera.act_for(p_owner);
  UPDATE haptera.session SET indexed = p_through
    WHERE key = p_key AND indexed = p_from AND (p_owner IS NULL OR owner = p_owner);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- Prompts that were queued during a turn that was open last time are in the index already.
  DELETE FROM haptera.text WHERE session = p_key AND seq > p_from;
  INSERT INTO haptera.text (session, seq, owner, message_id, part_id, text, words)
    SELECT s.key, t.seq, s.owner, t.message, t.part, t.body, t.words::tsvector
    FROM unnest(t_seq, t_message, t_part, t_text, t_words) AS t (seq, message, part, body, words)
    JOIN haptera.session s ON s.key = p_key;
  RETURN true;
END
$$;
