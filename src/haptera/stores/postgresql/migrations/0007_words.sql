-- The words of texts are others: pairs of characters in scripts without spaces, ss for ß, and the
-- beginnings of long words. Searches fill the index again.
DELETE FROM haptera.text;
UPDATE haptera.session SET indexed = 0;
