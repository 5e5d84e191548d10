"""Known ways to run a program past a rule that denies it; the program here is called `evil`.

They are what people found in rules of other tools: quoting, expansion, compound commands, wrappers,
interpreters, programs that run others, files that are made first. Each is harmless: `evil` does
nothing. A few need a program that is not installed everywhere, and do nothing there.
"""

_QUOTED = [
    "evil x", "'evil' x", '"evil" x', "ev'i'l x", 'ev"i"l x', "\\evil x", "e\\vil x", "evi\\l x",
    "''evil x", 'ev""il x', "$'evil' x", "$'\\x65vil' x", "$'\\145vil' x", '$"evil" x',
    "evil\tx", "  evil x", "\nevil x", "evil\\\n x", "ev\\\nil x", "e'v'\"i\"l x",
]  # fmt: skip
_EXPANDED = [
    "${x:-evil} x", "${x-evil} x", "${x:=evil} x", "x=evil; $x y", "x=evil && $x y",
    "x=ev; y=il; $x$y z", "x=evil; ${x} y", 'x=evil; "$x" y', "x=xevil; ${x#x} y",
    "x=evilx; ${x%x} y", "x=EVIL; ${x,,} y", "x=eXil; ${x/X/v} y", "x='evil y'; $x",
    "set -- evil; $1 x", 'set -- evil x; "$@"', "set -- evil x; $*", "a=(evil x); ${a[0]} y",
    'a=(evil x); "${a[@]}"', "e$@vil x", "ev${u}il x", "e${u}v${u}il x", "ev$()il x", "ev``il x",
    "{evil,x}", "{evil,x,y}", "e{v,}il x || evil", "/*/*/ev?l x; evil", "$(echo evil) x",
    "`echo evil` x", "$(printf 'ev%s' il) x", "$(echo live | rev) x", "$(echo ZXZpbA== | base64 -d) x",
    "$(printf '\\145\\166\\151\\154') x", "$(<name) x", "eval evil x", "eval 'evil x'",
    'eval "evil x"', "eval ev'il' x", "eval $(echo evil x)", "x=evil eval '$x y'",
    "declare x=evil; $x y", "typeset x=evil; $x y", "export x=evil; $x y", "readonly x=evil; $x y",
    "read x <<< evil; $x y", "printf -v x evil; $x y", "IFS=,; x=evil,y; $x",
    "x=(e v i l); $(IFS=; echo \"${x[*]}\") y", "${!x} ; evil", "x=y; y=evil; ${!x} z",
    "for x in evil; do $x y; done", "select x in evil; do $x; break; done < /dev/null; evil",
]  # fmt: skip
_COMPOUND = [
    "good; evil x", "good;evil x", "good && evil x", "good&&evil x", "false || evil x",
    "good | evil x", "good|evil x", "good |& evil x", "good & evil x", "good&evil x",
    "good\nevil x", "good\n\nevil x", "good;\nevil x", "good && good && evil x",
    "good; good; good; evil x", "evil x; good", "evil x | good", "evil x & good", "good ; ; evil x",
    "(evil x)", "( evil x )", "(good; evil x)", "{ evil x; }", "{ good; evil x; }", "{ evil x\n}",
    "((1)) && evil x", "[[ a ]] && evil x", "[ a ] && evil x", "test a && evil x", "! evil x",
    "! ! evil x", "time evil x", "time -p evil x", "coproc evil x", "coproc N { evil x; }",
    "if evil x; then good; fi", "if good; then evil x; fi", "if false; then good; else evil x; fi",
    "if false; then good; elif evil x; then good; fi", "while evil x; do break; done",
    "until evil x; do good; done", "while good; do evil x; break; done", "for i in 1; do evil x; done",
    "for ((;;)); do evil x; break; done", "case a in a) evil x;; esac", "case a in a) evil x;& *) ;; esac",
    "f() { evil x; }; f", "f() ( evil x ); f", "function f { evil x; }; f", "good() { evil x; }; good",
    "f() { $1 x; }; f evil", "trap 'evil x' EXIT", "trap 'evil x' DEBUG; good", "good #\nevil x",
    "good # comment\nevil x", ": ; evil x", ": || good; evil x", "true && { evil x; }",
    "good 2>&1; evil x", "good > /dev/null; evil x", "echo a; (evil x) &", "(good &) ; evil x",
    "good & wait; evil x", "good\r\nevil x", "good;evil\tx;good",
]  # fmt: skip
_SUBSTITUTED = [
    "echo $(evil x)", "echo `evil x`", 'echo "$(evil x)"', 'echo "`evil x`"', "good $(good; evil x)",
    "good <(evil x)", "good >(evil x)", "cat <(evil x)", "good < <(evil x)", "good > >(evil x)",
    "echo ${x:-$(evil x)}", "echo $(( $(evil x; echo 1) ))", "echo $[ $(evil x; echo 1) ]",
    "x=$(evil x)", "x=`evil x` good", "x=$(evil x) good", "good <<< $(evil x)", "good <<< \"`evil x`\"",
    "good <<E\n$(evil x)\nE", "good <<-E\n`evil x`\nE", "[ $(evil x) ]", "test -n \"$(evil x)\"",
    "[[ $(evil x) ]]", "printf -v 'a[$(evil x)]' y", "test -v 'a[$(evil x)]'", "[ -v 'a[$(evil x)]' ]",
    "[[ -v a[$(evil)] ]]", "declare 'a[$(evil x)]=1'", "unset 'a[$(evil x)]'", "let 'a[$(evil x)]=1'",
    "(( a[$(evil x)] ))", "read 'a[$(evil x)]' < /dev/null", "echo $((a[$(evil x)]))",
    "good > $(evil x; echo /dev/null)", "good \"$(\nevil x\n)\"", "echo \"${x:=$(evil x)}\"",
    "for i in $(evil x); do good; done", "case $(evil x) in *) ;; esac", "PS4='$(evil x)'; set -x; good",
    "a=([$(evil x)]=1)", "echo {a,$(evil x)}", "good ~$(evil x)", "cd $(evil x)", "$(evil x) good",
]  # fmt: skip
_REDIRECTED = [
    "> /dev/null evil x", ">/dev/null evil x", "2>&1 evil x", "< /dev/null evil x", "<<< a evil x",
    "2>/dev/null evil x", "&> /dev/null evil x", "1>&2 evil x", "{fd}>/dev/null evil x", "<&- evil x",
    "evil>/dev/null", "evil<name", "evil 2>&1", "3>&1 evil x", ">| out evil x", "<> out evil x",
]  # fmt: skip
_ASSIGNED = [
    "A=1 evil x", "A= evil x", "A=1 B=2 evil x", "A='a b' evil x", "A+=1 evil x", "PATH=bin evil x",
    "PATH=$PWD/bin:$PATH evil x", "LD_PRELOAD= evil x", "A=$(good) evil x", "a[0]=1 evil x",
    "BASH_ENV=script bash -c good", "ENV=script sh -i -c good < /dev/null",
]  # fmt: skip
_WRAPPED = [
    "env evil x", "env -i $(which evil) x", "env -u A evil x", "env A=1 evil x", "env - bin/evil x",
    "env -S 'evil x'", "env -S'evil x'", "env --split-string='evil x'", "env -C . evil x",
    "env -- evil x", "env env evil x", "/usr/bin/env evil x", "command evil x", "command -p env evil x",
    "command -- evil x", "builtin command evil x", "exec evil x", "exec -a good evil x",
    "exec -c bin/evil x", "(exec evil x)", "timeout 5 evil x", "timeout -k 1 5 evil x",
    "timeout -s KILL 5 evil x", "timeout --foreground 5 evil x", "timeout --signal=9 5 evil x",
    "nice evil x", "nice -n 5 evil x", "nice -5 evil x", "nice --adjustment=5 evil x", "nohup evil x",
    "setsid evil x", "setsid -w evil x", "stdbuf -o0 evil x", "stdbuf -oL -e0 evil x",
    "stdbuf --output=L evil x", "ionice -c 3 evil x", "chrt -o 0 evil x", "taskset 1 evil x",
    "flock out evil x", "flock out -c 'evil x'", "xargs evil < name", "echo x | xargs evil",
    "echo evil | xargs -I{} {} x", "echo x | xargs -n1 evil", "echo 'evil x' | xargs -0 sh -c",
    "echo x | xargs -I{} sh -c 'evil {}'", "xargs -a name evil", "find name -exec evil {} ;",
    "find . -name name -exec evil {} \\;", "find . -maxdepth 0 -exec evil {} +",
    "find . -maxdepth 0 -execdir $(which evil) {} +", "find . -maxdepth 0 -ok evil {} \\; <<< y",
    "watch -g -n 0.1 evil x", "script -qc 'evil x' /dev/null", "setarch x86_64 evil x",
    "linux64 evil x", "unshare evil x", "nsenter evil x", "chroot / env evil x", "setpriv evil x",
    "prlimit evil x", "runuser -u root evil x", "su -c 'evil x'", "sudo evil x", "doas evil x",
    "busybox sh -c 'evil x'", "strace -o /dev/null evil x", "run-parts bin", "sg root 'evil x'",
    "timeout 5 env nice nohup evil x", "env timeout 5 sh -c 'nice evil x'", "nice timeout 5 evil x",
    "start-stop-daemon --start --exec $PWD/bin/evil", "/lib64/ld-linux-x86-64.so.2 $PWD/bin/evil x",
    "nohup sh -c 'evil x'", "setsid sh -c 'evil x' -w", "time -f x evil x", "\\time evil x",
]  # fmt: skip
_INTERPRETED = [
    "sh -c 'evil x'", "bash -c 'evil x'", "dash -c 'evil x'", "sh -c 'good; evil x'", "sh -c evil",
    "sh -ec 'evil x'", "bash -xc 'evil x'", "bash -lc 'evil x'", "bash -o errexit -c 'evil x'",
    "bash -- script", "sh script", "bash script", "bash < script", "bash <(echo evil x)",
    "bash <<< 'evil x'", "bash <<E\nevil x\nE", "echo evil x | sh", "echo evil x | bash -s",
    "cat script | sh", "source script", ". script", ". ./script", "source ./script", "./script",
    "bin/../script", "sh -c '$0 x' evil", "sh -c '\"$@\"' _ evil x", "bash -c \"$(cat script)\"",
    "eval \"$(cat script)\"", "sh -c \"sh -c 'evil x'\"", "bash -c 'eval evil x'", "bash -ic 'evil x'",
    "python3 -c 'import os; os.system(\"evil x\")'", "python3 -c '__import__(\"os\").execlp(\"evil\", \"evil\")'",
    "python3 -c 'import subprocess as s; s.run([\"ev\" + \"il\"])'", "python3 -m timeit -n1 -r1 '__import__(\"os\").system(\"evil\")'",
    "echo 'import os; os.system(\"evil\")' | python3", "python3 script.py", "python3 - < script.py",
    "perl -e 'system \"evil x\"'", "perl -e 'exec \"evil\"'", "perl -e '`evil`'", "perl -le 'print qx(evil)'",
    "awk 'BEGIN { system(\"evil x\") }'", "awk 'BEGIN { \"evil\" | getline }'", "awk 'BEGIN { print 1 | \"evil\" }'",
    "gawk 'BEGIN { system(\"evil\") }'", "mawk 'BEGIN { system(\"evil\") }'", "sed -n '1e evil x' name",
    "sed 's/.*/evil x/e' name", "echo evil | sed 's/x/x/;e'", "ruby -e 'system \"evil\"'", "node -e 'require(\"child_process\").execSync(\"evil\")'",
    "php -r 'system(\"evil\");'", "lua -e 'os.execute(\"evil\")'", "tclsh <<< 'exec evil'", "expect -c 'spawn evil; expect eof'",
    "ed -s name <<< '!evil'", "ex -sc '!evil' -c q name", "vim -es -c '!evil' -c q", "vi -c '!evil' -c q name < /dev/null",
    "echo 'evil x' | at now", "echo 'syscmd(evil)' | m4", "gdb -batch -ex 'shell evil'", "make -f script.mk", "make --eval 'x:;evil' x",
    "make SHELL=$PWD/bin/evil x", "printf 'x:\\n\\tevil\\n' | make -f - x", "tar cf /dev/null name --checkpoint=1 --checkpoint-action=exec=evil",
    "tar cf out.tar name -I evil", "tar cf - name | tar xf - --to-command=evil", "tar --use-compress-program=evil -cf out.tar name",
    "git -c alias.x='!evil' x", "git -c core.pager=evil --paginate version", "git -c core.sshCommand=evil fetch ssh://x/y",
    "GIT_PAGER=evil git --paginate version", "git bisect run evil", "git submodule foreach evil", "git clone 'ext::evil x' y",
    "git grep --open-files-in-pager=evil x", "git difftool -y --extcmd=evil", "rsync -e evil x: y", "ssh -o ProxyCommand=evil x",
    "scp -S evil x: y", "sort --compress-program=evil -S 1 name", "split --filter=evil name", "zip -T -TT evil out.zip name",
    "man -P evil ls", "less name", "MANPAGER=evil man ls", "install --strip-program=evil -s bin/evil out", "env PAGER=evil man ls",
]  # fmt: skip
_MADE_FIRST = [
    "cp bin/evil other; ./other", "cp $(which evil) other && ./other x", "ln -s bin/evil other; ./other",
    "ln bin/evil other; ./other x", "mv bin/evil bin/renamed; renamed; mv bin/renamed bin/evil", "cat bin/evil > other; chmod +x other; ./other",
    "echo evil x > made; sh made", "printf 'evil x' > made; . ./made", "echo '#!/bin/sh' > made; echo evil >> made; chmod +x made; ./made",
    "tee made <<< 'evil x'; bash made", "alias good=evil; good", "shopt -s expand_aliases\nalias good='evil x'\ngood", "hash -p $PWD/bin/evil good; good",
    "enable -f x evil; evil", "mkdir -p p; ln -s ../bin/evil p/good; PATH=p:$PATH good", "ln -sf $PWD/bin/evil good; ./good", "cd bin; ./evil",
    "pushd bin; ./evil", "$PWD/bin/evil x", "bin/evil x", "./bin/evil x", "bin//evil x", "bin/./evil x", "bin/../bin/evil x", "~+/bin/evil x",
    "exec 3<script; sh /dev/fd/3", "sh /dev/stdin < script", "mapfile -t a < script; ${a[0]}", "eval \"$(printf '%s' 'ev' 'il')\"",
    "complete -C evil x; compgen -C evil x", "PROMPT_COMMAND=evil bash -i < /dev/null", "bind -x '\"a\":evil'; evil", "fc -s evil; evil",
]  # fmt: skip

BYPASSES: tuple[str, ...] = tuple(
    dict.fromkeys(
        [
            *_QUOTED, *_EXPANDED, *_COMPOUND, *_SUBSTITUTED, *_REDIRECTED, *_ASSIGNED, *_WRAPPED,
            *_INTERPRETED, *_MADE_FIRST,
        ]
    )
)  # fmt: skip
