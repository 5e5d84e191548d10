-- Queries of sub-agents are carried on by the session that called them, and by no worker.
CREATE OR REPLACE FUNCTION haptera.claim_unowned(
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
        AND c.details ->> 'spawned_by' IS NULL
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
