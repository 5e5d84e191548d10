"""The style sheet of an exported page.

A module of its own because it is data: the page's policy names its checksum.
"""

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f23; --soft: #5f6672; --paper: #fff;
  --card: #f6f7f9; --line: #dfe2e8; --user: #2457c5; --model: #0c7a5c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #9aa3b2;
  --paper: #15171b; --card: #1d2026; --line: #32373f; --user: #8ab0ff; --model: #6fd3b0;
  --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 1.5rem; margin: 0 0 1.5rem; font-size: .85rem; }
dl div { min-width: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
article { border-top: 1px solid var(--line); padding: 1rem 0 .5rem; }
article:target { background: var(--card); }
h2 { display: inline; margin: 0; font-size: .95rem; }
.user h2 { color: var(--user); }
.assistant h2 { color: var(--model); }
h3 { margin: .6rem 0 .2rem; color: var(--soft); font-size: .8rem; font-weight: 600; }
.facts { display: inline; margin: 0 0 0 .6rem; color: var(--soft); font-size: .8rem; }
.facts span::after { content: " \\00b7  "; }
.facts a { color: inherit; text-decoration: none; }
p { margin: .6rem 0; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
.heading { font-weight: 700; }
.media { color: var(--soft); font-style: italic; }
pre { margin: .4rem 0; padding: .7rem .8rem; overflow: auto; max-height: 32rem;
  background: var(--paper); border: 1px solid var(--line); border-radius: .4rem;
  font-size: .82rem; line-height: 1.45; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate; }
article > pre { background: var(--card); }
code { font-family: ui-monospace, monospace; font-size: .9em; }
details { margin: .6rem 0; padding: .4rem .8rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .4rem; }
summary { cursor: pointer; font-size: .9rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
summary .hint { margin-left: .6rem; color: var(--soft); font-size: .8rem; }
summary em { float: right; margin-left: .6rem; color: var(--model); font-style: normal;
  font-size: .8rem; }
summary .error, summary .denied, summary .timed_out, summary .cancelled, summary .interrupted,
summary .unknown, summary .unanswered { color: var(--bad); }
.reasoning, .note, .provider { color: var(--soft); }
img { max-width: 100%; height: auto; border-radius: .4rem; }
figure { margin: .6rem 0; }
@media print { details > * { display: block; } pre { max-height: none; } }
"""
