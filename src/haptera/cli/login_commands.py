"""`haptera login` and `haptera logout`: keys and OAuth logins of providers."""

import asyncio
import shutil
import sys
import textwrap
import webbrowser

import click

from haptera.access.credentials import (
    find_credentials,
    has_browser,
    log_in,
    log_out,
    login_method,
    login_providers,
    store_key,
    stored_credentials,
)
from haptera.cli.terminal import Output, safe_line

_LONGEST_INPUT = 64 * 1024


@click.command(help="Store the key of a provider, or log in to it.")
@click.argument("provider", required=False)
@click.option("--with-key", is_flag=True, help="Read the key from standard input.")
@click.option("--paste", is_flag=True, help="Log in in a browser elsewhere and paste its URL here.")
@click.option("--no-keyring", is_flag=True, help="Keep it in a private file, not in the keyring.")
def login(provider: str | None, *, with_key: bool, paste: bool, no_keyring: bool) -> None:
    """Store a key that is typed or piped in; or log in in the browser, where that is configured."""
    output = Output()
    chosen = provider or _ask_provider(output)
    if with_key or login_method(chosen) == "key":
        if paste:
            raise click.UsageError(
                f"--paste is for logins in a browser, and {chosen!r} takes a key: "
                "type it, or pipe it in with --with-key"
            )
        key = _piped_key() if with_key else _typed_key(chosen)
        saved = store_key(chosen, key, keyring=not no_keyring)
    else:
        dialogue = _Dialogue(output, browser=not paste)
        saved = asyncio.run(log_in(chosen, dialogue, paste=paste, keyring=not no_keyring))
    output.line(safe_line(f"{chosen}: {saved.source}"))
    used = {each.provider: each for each in find_credentials()}.get(chosen)
    if used is not None and used.source != saved.source:
        output.note(f"haptera: {used.source} goes before it; remove that to use the login")


@click.command(help="Remove what `login` stored.")
@click.argument("provider", required=False)
@click.option("--all", "everything", is_flag=True, help="Of all providers.")
def logout(provider: str | None, *, everything: bool) -> None:
    """Remove a stored key or login. Nothing is revoked at the provider."""
    stored = stored_credentials()
    if provider is None and not everything and len(stored) != 1:
        names = ", ".join(stored) or "none"
        raise click.UsageError(f"name a PROVIDER, or --all; logged in: {safe_line(names)}")
    chosen = tuple(stored) if provider is None else (provider,)
    output = Output()
    for name in chosen:
        removed = log_out(name)
        output.line(f"{safe_line(name)}: {'logged out' if removed else 'nothing was stored'}")


class _Dialogue:
    """Shows the login page's URL, opens the browser, and asks for what it ended at."""

    def __init__(self, output: Output, *, browser: bool) -> None:
        self._output = output
        self._browser = browser

    def show(self, url: str) -> bool:
        opens = self._browser and has_browser()
        lead = "Your browser opens this page to log in:" if opens else "Log in at this page:"
        self._output.line(f"{lead}\n\n{safe_line(url)}\n")
        return opens and webbrowser.open(url)

    def paste(self) -> str:
        self._output.line("Then paste the URL that the browser ended at, or the code it shows:")
        return sys.stdin.readline(_LONGEST_INPUT)


def _ask_provider(output: Output) -> str:
    names = login_providers()
    if not sys.stdin.isatty():
        raise click.UsageError("name a PROVIDER, such as: haptera login anthropic --with-key")
    message = f"Providers: {', '.join(map(safe_line, names))}"
    width = shutil.get_terminal_size().columns
    output.line(textwrap.fill(message, width, break_on_hyphens=False, break_long_words=False))
    answer: str = click.prompt("Log in to", type=click.Choice(names), show_choices=False, err=True)
    return answer


def _piped_key() -> str:
    return sys.stdin.read(_LONGEST_INPUT).strip()


def _typed_key(provider: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(f"pipe the key in: haptera login {provider} --with-key < FILE")
    key: str = click.prompt(f"Key of {safe_line(provider)} (not shown)", hide_input=True, err=True)
    return key
