"""What is known of programs: which run others, how to find the others, and which run none.

The tables hold what is common. A program that is in none of them may do anything.
"""

import re
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from haptera.kernel.blocks.permission_rules.shell_words import Unreadable, Words, read_command

Doubt: TypeAlias = Literal["none", "unknown", "writes", "opaque", "runs others"]
"""Whether all that will happen is known.

- `none`: yes.
- `unknown`: the program is in no table, so its arguments may name another one.
- `writes`: an option names a file to write, which the name of the program does not tell.
- `opaque`: no, it runs code of its own.
- `runs others`: no, its arguments say what else runs.
"""

# Wrappers and shells within each other; what is deeper is not read.
_DEEPEST = 5

# Options without a value, and options with one, that may stand before the command.
_WRAPPERS: dict[str, tuple[frozenset[str], frozenset[str], int]] = {
    "command": (frozenset(), frozenset(), 0),
    "env": (frozenset(), frozenset(), 0),
    "exec": (frozenset(), frozenset(), 0),
    "ionice": (frozenset({"-t"}), frozenset({"-c", "-n"}), 0),
    "nice": (frozenset(), frozenset({"-n"}), 0),
    "nohup": (frozenset(), frozenset(), 0),
    "setsid": (frozenset({"-f", "-w"}), frozenset(), 0),
    "stdbuf": (frozenset({"-oL", "-o0", "-eL", "-e0"}), frozenset({"-i", "-o", "-e"}), 0),
    "timeout": (frozenset({"--foreground", "--preserve-status"}), frozenset({"-k", "-s"}), 1),
}
"""Programs that only run the command that follows: options, options with a value, words before."""

_INTERPRETER = r"(python|pypy|perl|ruby|lua|tclsh|php|node)[0-9.]*$"
_SHELLS = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})

_RUNS_OTHERS = frozenset(
    {
        "at", "batch", "bwrap", "builtin", "busybox", "capsh", "catchsegv", "chroot", "chrt",
        "chpst", "coproc", "daemonize", "dbus-run-session", "direnv", "doas", "docker", "entr",
        "eval", "expect", "fakeroot", "faketime", "firejail", "flatpak", "flock", "gdb", "kubectl",
        "ld-linux-x86-64.so.2", "ld.so", "linux32", "linux64", "lldb", "ltrace", "machinectl",
        "mispipe", "nsenter", "numactl", "parallel", "perf", "pkexec", "podman", "prlimit",
        "proot", "pv", "rlwrap", "runcon", "runuser", "run-parts", "schedtool", "screen", "script",
        "setarch", "setpriv", "sg", "source", "ssh", "start-stop-daemon", "strace", "su", "sudo",
        "systemd-run", "taskset", "tmux", "toybox", "trap", "tsocks", "unbuffer", "unshare",
        "valgrind", "watch", "xargs", "xvfb-run", ".", "alias", "enable", "hash", "bind",
        "complete", "compgen", "fc", "mapfile", "readarray", "npx", "bunx", "pnpx", "uvx", "pipx",
        "setuidgid", "softlimit", "torsocks", "proxychains", "proxychains4", "chronic", "ifne",
        "time", "x86_64", "i386", "sshpass", "dtach", "abduco",
    }
)  # fmt: skip
"""Programs whose arguments say what else is run, in ways that are not read here."""

_OPAQUE = frozenset(
    {
        "[", "test", "let", "declare", "typeset", "local", "export", "readonly", "unset", "read",
        "wait", "set", "shopt", "awk", "gawk", "mawk", "nawk", "sed", "gsed", "ed", "ex", "vi",
        "vim", "vimdiff", "nvim", "view", "emacs", "nano", "pico", "less", "more", "most", "man",
        "info", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit",
        "tclsh", "wish", "guile", "scheme", "racket", "clojure", "java", "jshell", "scala",
        "groovy", "kotlin", "ghci", "runghc", "ocaml", "erl", "elixir", "iex", "julia", "R",
        "Rscript", "octave", "gnuplot", "m4", "bc", "dc", "jq", "sqlite3", "psql", "mysql",
        "mongosh", "redis-cli", "ftp", "lftp", "telnet", "nc", "ncat", "netcat", "socat",
        "openssl", "gpg", "cpan", "gem", "bundle", "fish", "csh", "tcsh", "rbash", "pwsh", "xonsh",
        "nu", "crontab", "systemctl", "service", "cmake", "ninja", "meson", "ctest", "gcc", "g++",
        "cc", "c++", "clang", "clang++", "ld", "as", "rustc", "tcc", "go", "cargo", "ansible",
        "terraform", "vagrant", "zip", "unzip", "7z", "cpio", "rpm", "dpkg", "apt", "apt-get",
        "yum", "dnf", "apk", "pacman", "brew", "snap", "hg", "svn", "cvs", "p4", "bzr", "fossil",
        "gh", "scp", "sftp", "mutt", "mail", "sendmail", "top", "htop", "pg", "w3m", "lynx",
        "links", "dialog", "whiptail", "fzf", "ranger", "mc", "nnn", "logrotate", "install",
        "split", "csplit", "slsh", "busctl", "journalctl", "ip", "tc", "iptables",
        "tcpdump", "wireshark", "nmap", "hping3", "ldconfig", "ldd", "iconv", "dmesg", "mount",
        "umount", "losetup", "fsck", "git-shell", "restic", "rclone", "borg", "pip", "pip3", "tar",
        "air", "asdf", "aws-vault", "bear", "cage", "ccache", "chamber", "concurrently", "conda",
        "corepack", "coverage", "cross-env", "devbox", "devenv", "distcc", "distrobox", "doppler",
        "dotenv", "dotenvx", "dumb-init", "envchain", "envdir", "fnm", "foreman", "gosu", "gradle",
        "hatch", "heroku", "hivemind", "honcho", "hyperfine", "invoke", "just", "kcov", "lerna",
        "mamba", "micromamba", "mise", "mvn", "nix", "nix-shell", "nodemon", "nox", "nvm", "nx",
        "op", "overmind", "pdm", "pipenv", "pixi", "pnpm", "poetry", "rargs", "rbenv", "reflex",
        "rr", "rtx", "rush", "rye", "s6-setuidgid", "sccache", "scan-build", "sem", "sops",
        "su-exec", "task", "tini", "toolbox", "tox", "tsx", "ts-node", "turbo", "uv", "volta",
        "wait-for-it", "watchexec", "wine", "yarn", "pyenv", "nodenv", "goenv", "jenv", "teller",
    }
)  # fmt: skip
"""Programs that run code or other programs of their own choice."""


class _Switches(NamedTuple):
    """Options of one program that say more than its name does."""

    long: tuple[str, ...] = ()
    """Long options. Programs accept any beginning of them: `--upload-pac` is `--upload-pack`."""
    other: str = "(?!)"
    """Everything else, as a pattern of its beginning."""

    def fits(self, word: str) -> bool:
        """Whether a word is one of the options, abbreviated or with its value."""
        if not word.startswith("--") or word == "--":
            return re.match(self.other, word) is not None
        given = word.partition("=")[0]
        return any(one.startswith(given) or given.startswith(one) for one in self.long)


_TELLING_OPTIONS: dict[str, _Switches] = {
    "cargo": _Switches(("--config",), r"\+"),
    "curl": _Switches(("--config",), r"-[a-zA-Z#]*K"),
    "fd": _Switches(("--exec", "--exec-batch"), r"-[a-zA-Z]*[xX]"),
    "fdfind": _Switches(("--exec", "--exec-batch"), r"-[a-zA-Z]*[xX]"),
    "find": _Switches(other=r"-(exec|ok|fprint|fls|delete)"),
    "git": _Switches(
        (
            "--config-env", "--exec-path", "--upload-pack", "--receive-pack", "--exec",
            "--open-files-in-pager", "--ext-diff", "--textconv", "--paginate", "--git-dir",
            "--work-tree", "--template", "--editor", "--extcmd", "--pager", "--ssh-command",
            "--gpg-sign", "--config", "--tool", "--remote",
        ),
        r"-c|-x|-u|-p$|-C$|-[a-zA-Z]*[OS]|.*ext::|.*transport::",
    ),
    "make": _Switches(
        ("--eval", "--file", "--makefile", "--directory", "--include-dir"),
        r"-[a-zA-Z]*[EfCI]|[A-Za-z_]+[:+?!]*=",
    ),
    "npm": _Switches(
        ("--script-shell", "--prefix", "--userconfig", "--globalconfig"), r"-C|(exec|x|explore)$"
    ),
    "printf": _Switches(other="-v"),
    "pytest": _Switches(
        ("--rootdir", "--override-ini", "--pdbcls", "--pyargs", "--config-file"),
        r"-[^-kmnrW]*[pco]",  # the other letters take the rest as their value
    ),
    "rg": _Switches(("--pre", "--hostname-bin", "--search-zip"), r"-[a-zA-Z]*z"),
    "rsync": _Switches(("--rsh", "--rsync-path"), r"-[a-zA-Z]*e"),
    "sort": _Switches(
        ("--compress-program", "--temporary-directory", "--files0-from"), r"-[a-zA-Z]*T"
    ),
    "tar": _Switches(
        (
            "--checkpoint-action", "--to-command", "--use-compress-program", "--rsh-command",
            "--info-script", "--new-volume-script",
        ),
        r"-[a-zA-Z]*[FI]",
    ),
    "tree": _Switches(("--fromfile",), "-R"),
    "wget": _Switches(("--use-askpass", "--execute", "--config"), r"-[a-zA-Z]*e"),
}  # fmt: skip
"""Options with which a program runs another one."""

_OUTPUT_OPTIONS: dict[str, _Switches] = {
    "curl": _Switches(
        (
            "--output", "--remote-name", "--dump-header", "--cookie-jar", "--trace", "--stderr",
            "--etag-save", "--hsts", "--alt-svc", "--libcurl",
        ),
        r"-[a-zA-Z#]*[oOJDc]",
    ),
    "git": _Switches(("--output", "--output-directory"), r"-o"),
    "shuf": _Switches(("--output",), r"-[a-zA-Z]*o"),
    "sort": _Switches(("--output",), r"-[a-zA-Z]*o"),
    "tree": _Switches(other=r"-[a-zA-Z]*o"),
}  # fmt: skip
"""Options with which a program that only reads by its name writes a file."""

_SECOND_IS_WRITTEN = frozenset({"ptx", "uniq", "xxd"})
"""Programs that write to the second file that they are given."""

_GIT_THAT_RUNS = frozenset(
    {
        "am", "bisect", "config", "credential", "daemon", "difftool", "filter-branch",
        "fsmonitor--daemon", "gc", "hook", "instaweb", "maintenance", "mergetool", "p4", "rebase",
        "remote-ext", "replace", "send-email", "shell", "submodule", "svn", "upload-pack",
        "web--browse", "worktree",
    }
)  # fmt: skip
"""Commands of git that run other programs, whatever their options."""

RUN_NO_OTHERS = frozenset(
    {
        "base64", "basename", "cat", "cd", "chmod", "cksum", "cmp", "comm", "cp", "cut", "date",
        "dd", "df", "diff", "dirname", "du", "echo", "egrep", "expand", "expr", "factor", "false",
        "fgrep", "find", "fmt", "fold", "grep", "groups", "head", "hexdump", "hostid", "id", "join",
        "link", "ln", "logname", "ls", "md5sum", "mkdir", "mkfifo", "mktemp", "mv", "nl", "nproc",
        "numfmt", "od", "paste", "pathchk", "pr", "printenv", "printf", "ptx", "pwd", "readlink",
        "realpath", "rev", "rm", "rmdir", "seq", "sha1sum", "sha256sum", "sha512sum", "shred",
        "shuf", "sleep", "sort", "stat", "strings", "sum", "sync", "tac", "tail", "tee", "touch",
        "tr", "true", "truncate", "tsort", "tty", "uname", "unexpand", "uniq", "unlink", "uptime",
        "users", "wc", "which", "who", "whoami", "xxd", "yes", ":",
    }
)  # fmt: skip
"""Programs that run no other, whatever their arguments (but for the telling options above)."""


class Invocation(msgspec.Struct, frozen=True):
    """One program that will run, as far as is known."""

    words: Words
    doubt: Doubt = "none"
    via: tuple[Words, ...] = ()
    """The commands that run it, the outermost first, where the shell does not."""

    @property
    def is_doubtful(self) -> bool:
        """Whether more may happen than the program's name tells."""
        return self.doubt not in {"none", "unknown"}


def base_name(program: str) -> str:
    """Return a program's name without its folder."""
    return program.rpartition("/")[2]


def invocations_of(words: Words, *, depth: int = _DEEPEST) -> list[Invocation]:
    """Return what a simple command runs: itself, or what its wrapper runs."""
    name = base_name(words[0])
    if depth == 0:
        return [Invocation(words, "runs others")]
    if name in _WRAPPERS:
        inner = _unwrapped(name, words)
        if inner is None:
            return [Invocation(words, "runs others")]
        return [_within(item, words) for item in invocations_of(inner, depth=depth - 1)]
    if name in _SHELLS:
        return _inside_shell(words, depth)
    return [Invocation(words, _doubt_about(name, words))]


def _within(item: Invocation, words: Words) -> Invocation:
    return Invocation(item.words, item.doubt, (words, *item.via))


def _unwrapped(name: str, words: Words) -> Words | None:
    """Return the command after a wrapper's options; None if they are not known."""
    flags, valued, before = _WRAPPERS[name]
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] in flags:
            at += 1
        elif words[at] in valued:
            at += 2
        else:
            # An option that is not listed may take the next word as its value: where the command
            # begins is not known then.
            return None
    inner = words[at + before :]
    # `env A=b program` sets a variable, which may change what the program does.
    return inner if inner and "=" not in inner[0] else None


def _inside_shell(words: Words, depth: int) -> list[Invocation]:
    """Read the string that a shell is given; a script or anything else is opaque."""
    _shell, *given = words
    # Only `sh -c text`: words after the text would be its parameters.
    if given[:-1] != ["-c"]:
        return [Invocation(words, "runs others" if "-c" in words[1:2] else "opaque")]
    read = read_command(words[2])
    if isinstance(read, Unreadable):
        return [Invocation(words, "runs others")]
    found = [item for inner in read for item in invocations_of(inner, depth=depth - 1)]
    return [_within(item, words) for item in found]


def _doubt_about(name: str, words: Words) -> Doubt:
    given = words[1:]
    if _runs_others(name, given):
        return "runs others"
    if name in _OPAQUE or re.match(_INTERPRETER, name):
        return "opaque"
    if _writes(name, given):
        return "writes"
    if name in RUN_NO_OTHERS or name in _TELLING_OPTIONS:
        return "none"
    return "opaque" if any(map(_may_hide, given)) else "unknown"


def _runs_others(name: str, given: Words) -> bool:
    if name in _RUNS_OTHERS or name.startswith("ld-"):
        return True
    options = _TELLING_OPTIONS.get(name)
    if options is not None and any(map(options.fits, given)):
        return True
    return name == "git" and not _GIT_THAT_RUNS.isdisjoint(given)


def _may_hide(word: str) -> bool:
    """Whether an argument of an unknown program may be a command, or name what runs one."""
    name = base_name(word)
    return (
        name in _RUNS_OTHERS
        or name in _OPAQUE
        or name in _SHELLS
        or name in _WRAPPERS
        or re.match(_INTERPRETER, name) is not None
        or re.search(r"[$`;|&\n\\]", word) is not None
    )


def _writes(name: str, given: Words) -> bool:
    options = _OUTPUT_OPTIONS.get(name)
    if options is not None and any(map(options.fits, given)):
        return True
    return name in _SECOND_IS_WRITTEN and sum(not word.startswith("-") for word in given) > 1


def written_paths(item: Invocation) -> list[str]:
    """Return what may be the path of a file that a program's options make it write."""
    if item.doubt != "writes":
        return []
    found = [word for word in item.words[1:] if not word.startswith("-")]
    # The value stands in the same word too, behind `=` or behind a letter: `-oF`, `-uoF`.
    for word in item.words[1:]:
        if word.startswith("--"):
            found.append(word.partition("=")[2])
        elif word.startswith("-"):
            found += [word[at:] for at in range(2, len(word))]
    return [path for path in found if path]
