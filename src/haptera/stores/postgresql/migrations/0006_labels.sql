-- What sessions are found by, beside their columns: a text for each tag, each field of the metadata
-- and each user who spoke. The column changes only with these, so the index does not change with
-- every append.

CREATE FUNCTION haptera.labels_of(p_details jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(array_agg(
    CASE WHEN length(x.label) <= 200 THEN x.label
      ELSE encode(sha256(convert_to(x.label, 'UTF8')), 'hex') END
  ), '{}')
  FROM (
    SELECT 'tag:' || t.tag AS label FROM jsonb_array_elements_text(
      CASE WHEN jsonb_typeof(p_details -> 'tags') = 'array' THEN p_details -> 'tags' ELSE '[]' END
    ) AS t (tag)
    UNION ALL
    SELECT 'metadata:' || jsonb_build_array(m.key, m.value)::text FROM jsonb_each(
      CASE WHEN jsonb_typeof(p_details -> 'metadata') = 'object'
        THEN p_details -> 'metadata' ELSE '{}' END
    ) m
    UNION ALL
    SELECT k.key FROM jsonb_object_keys(p_details) AS k (key) WHERE starts_with(k.key, 'sender ')
  ) x
$$;

ALTER TABLE haptera.session
  ADD COLUMN labels text[] GENERATED ALWAYS AS (haptera.labels_of(details)) STORED;
CREATE INDEX session_labels ON haptera.session USING gin (labels);

-- The status that is shown: what a program has set, or else what the last query does.
CREATE FUNCTION haptera.shown_status(p_details jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(
    p_details -> 'metadata' ->> 'status', p_details ->> 'status', 'idle'
  )
$$;
