"""Writes the rules by which secrets are found in texts, from the rule set of gitleaks.

    python scripts/build_secret_rules.py [PACKAGE.deb]

The rule set is under the MIT licence, whose text is written beside the rules. It is taken from the
package that Debian makes of the source. Its expressions are those of Go; what they mean is kept,
except that

- what stands before the name of a service in a rule is left out: only the secret is masked;
- what ends a secret is looked at and not consumed, so that two may follow each other, and includes
  the punctuation of prose and of JSON in JSON;
- a part that is repeated is no group: what a group has is the secret;
- the quotes around a name and a value may be escaped.

A rule that is not taken over is listed with the reason.
"""

import hashlib
import io
import json
import re
import sys
import tarfile
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

VERSION = "8.26.0"
NAME = f"golang-github-gitleaks-gitleaks-dev_{VERSION}-1_all.deb"
URL = f"https://deb.debian.org/debian/pool/main/g/gitleaks/{NAME}"
SHA256 = "24a4d3a12170287f8e9fc38282c396a6c2cbf118557f5cca3bcb8d096948c27e"
TARGET = Path(__file__).parents[1] / "src/haptera/formats/secret_rules.json"
LICENCE = TARGET.with_name("secret_rules_LICENSE.txt")

REFUSED = {
    "generic-api-key": "finds whatever looks random behind a usual word, in prose and code, too",
    "pkcs12-file": "is about names of files and has no expression",
    "curl-auth-header": "takes more than linear time; headers are found by a rule of our own",
    "curl-auth-user": "takes more than linear time; users of curl are found by a rule of our own",
    "private-key": "takes quadratic time; keys in PEM are found by a rule of our own",
    "nuget-config-password": "takes quadratic time, and is for files of one name only",
    "kubernetes-secret-yaml": "takes 20,000 steps for each of its words, and is for YAML only",
    "hashicorp-tf-password": "is for files of one kind; passwords are found by a rule of our own",
}
REFUSED_ALLOWANCES = {
    "(?i)^true|false|null$": "allows every secret with these letters somewhere in it",
}
_LEAD = r"[\w.-]{0,50}?"
_QUOTES = r"""[\s'"]{0,3}"""
_QUOTES_IN_JSON = r"""[\s'"\\]{0,4}"""
_ENDS = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_ENDS_HERE = r"""(?=[\x60'"\s;,)\]}<>&|]|\\[nrt"'\\]|[.:!?](?:\s|\Z)|\Z)"""
_LAST_SIGN = re.compile(r"\(\?:(\[\^[^\]]+\])\|(?:\\z|\$)\)$")
_REPEATED = re.compile(r"\(([^()?][^()]*)\)\{")
_NAMED = re.compile(r"\(\?P<\w+>")
_FLAG = re.compile(r"\(\?([a-z]+)\)")


def content_of(package: bytes) -> tuple[str, str]:
    """Return the rule set and the text of the licence that are in a package of Debian."""
    if hashlib.sha256(package).hexdigest() != SHA256:
        raise SystemExit(f"this is not {NAME}")
    place = 8
    members: dict[str, bytes] = {}
    while place + 60 <= len(package):
        head = package[place : place + 60]
        size = int(head[48:58])
        members[head[:16].decode().strip().rstrip("/")] = package[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(members["data.tar.xz"]), mode="r:xz") as archive:
        for member in archive:
            if member.name.endswith(("/config/gitleaks.toml", "/copyright")):
                file = archive.extractfile(member)
                if file is not None:
                    found[member.name.rpartition("/")[2]] = file.read().decode()
    return found["gitleaks.toml"], found["copyright"]


def translated(expression: str) -> str:
    """Return an expression of Go's RE2 as one of Python's, compiled with `re.ASCII`."""
    expression = expression.replace(_LEAD, "").replace(_QUOTES, _QUOTES_IN_JSON)
    expression = _LAST_SIGN.sub(r"(?=\1|$)", expression.replace(_ENDS, _ENDS_HERE))
    expression = expression.replace(r"""[\x60'"\s=]{0,5}""", r"""[\x60'"\s=\\]{0,6}""")
    expression = _REPEATED.sub(r"(?:\1){", expression)
    expression = _NAMED.sub("(?:", expression).replace(r"\z", r"\Z")
    return _with_scoped_flags(_with_absolute_ends(expression))


def _with_absolute_ends(expression: str) -> str:
    """Write `^` and `$`, which in Go are the ends of a text, as Python writes these."""
    written, is_class, place = list[str](), False, 0
    while place < len(expression):
        sign = expression[place]
        if sign == "\\":
            written.append(expression[place : place + 2])
            place += 2
            continue
        if is_class:
            is_class = sign != "]" or expression[place - 1] == "["
            sign = r"\[" if sign == "[" else sign  # Python warns of sets in sets
        elif sign == "[":
            is_class = True
        else:
            sign = {"$": r"\Z", "^": r"\A"}.get(sign, sign)
        written.append(sign)
        place += 1
    return "".join(written)


def _with_scoped_flags(expression: str) -> str:
    """Write a flag that counts from its place to the end of its group as a group of its own."""
    while (found := _FLAG.search(expression, 1)) is not None:
        depth, place, branches = 0, found.end(), [found.end()]
        while place < len(expression):
            sign = expression[place]
            if sign == "\\":
                place += 1
            elif sign == "[":
                place = _end_of_class(expression, place)
            elif sign == "(":
                depth += 1
            elif sign == ")":
                if depth == 0:
                    break
                depth -= 1
            elif sign == "|" and depth == 0:
                branches.append(place + 1)
            place += 1
        begins = zip(branches, [*(each - 1 for each in branches[1:]), place], strict=True)
        scoped = "|".join(f"(?{found[1]}:{expression[start:end]})" for start, end in begins)
        expression = expression[: found.start()] + scoped + expression[place:]
    return expression


def _end_of_class(expression: str, place: int) -> int:
    place += 1
    while expression[place] != "]":
        place += 2 if expression[place] == "\\" else 1
    return place


def rule_of(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a rule as it is kept."""
    rule: dict[str, Any] = {"id": raw["id"], "regex": translated(raw["regex"])}
    rule["keywords"] = sorted({word.lower() for word in raw["keywords"]})
    if raw.get("entropy"):
        rule["entropy"] = raw["entropy"]
    allowed = [
        translated(each)
        for allowance in raw.get("allowlists", [])
        if allowance.get("regexTarget", "secret") == "secret"
        for each in allowance.get("regexes", [])
    ]
    if allowed:
        rule["allowed"] = allowed
    re.compile(rule["regex"], re.ASCII)
    return rule


def main(arguments: list[str]) -> None:
    """Write the rules and the licence."""
    if arguments:
        package = Path(arguments[0]).read_bytes()
    else:
        with urllib.request.urlopen(URL) as answer:
            package = answer.read()
    text, licence = content_of(package)
    raw = tomllib.loads(text)
    known = {each["id"] for each in raw["rules"]}
    if missing := REFUSED.keys() - known:
        raise SystemExit(f"no longer in the rule set: {missing}")
    allowed = [each for each in raw["allowlist"]["regexes"] if each not in REFUSED_ALLOWANCES]
    table = {
        "source": f"https://github.com/gitleaks/gitleaks {VERSION}, under the MIT licence",
        "refused": REFUSED | REFUSED_ALLOWANCES,
        "allowed": [translated(each) for each in allowed],
        "stopwords": sorted(raw["allowlist"]["stopwords"]),
        "rules": [rule_of(each) for each in raw["rules"] if each["id"] not in REFUSED],
    }
    TARGET.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    LICENCE.write_text(
        "The rules in secret_rules.json are made from those of gitleaks.\n\n" + licence,
        encoding="utf-8",
    )
    sys.stdout.write(f"{len(table['rules'])} rules; {len(REFUSED)} left out\n")


if __name__ == "__main__":
    main(sys.argv[1:])
