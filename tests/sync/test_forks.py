"""A process that forks: the child has a loop of its own and never waits for its parent's."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

PRELUDE = """
import os, sys
from haptera import AgentError
from haptera.sync import Agent, run_agent
from haptera.testing import ScriptedProvider, says

def an_agent(*texts):
    provider = ScriptedProvider([says(*text.split()) for text in texts])
    return Agent("scripted/one", providers=[provider], environment={})

def in_child(work):
    # The parent waits for its child, and shows how it ended.
    child = os.fork()
    if child == 0:
        try:
            work()
        except AgentError as error:
            print("child:", error.code, flush=True)
        except BaseException as error:
            print("child:", repr(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def run_forking(script: str) -> list[str]:
    """Run a script that forks, in a process without threads but its own; return what it says."""
    code = PRELUDE + textwrap.dedent(script)
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=15)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_child_can_make_an_agent_after_its_parent_has_used_one() -> None:
    said = run_forking("""
        with an_agent("one", "two") as agent:
            agent.run("go")
            in_child(lambda: print("child:", an_agent("mine").run("go").text, flush=True))
            print("parent:", agent.run("go").text)
    """)
    assert said == ["child: mine", "parent: two"]


@pytest.mark.parametrize(
    "use",
    ["agent.run('go')", "session.chat('go')", "agent.session().chat('go')", "session.export()"],
)
def test_what_was_used_before_the_fork_is_refused_in_the_child_and_goes_on_in_the_parent(
    use: str,
) -> None:
    said = run_forking(f"""
        with an_agent("one", "two") as agent, agent.session() as session:
            session.chat("go")
            in_child(lambda: {use})
            print("parent:", session.chat("go").text)
    """)
    assert said == ["child: CLOSED", "parent: two"]


def test_an_agent_that_was_not_used_before_the_fork_can_be_used_on_both_sides() -> None:
    said = run_forking("""
        agent = an_agent("fine")
        in_child(lambda: print("child:", agent.run("go").text, flush=True))
        print("parent:", agent.run("go").text)
        agent.close()
    """)
    assert said == ["child: fine", "parent: fine"]


def test_a_fork_in_the_middle_of_a_stream_leaves_it_to_the_parent() -> None:
    said = run_forking("""
        with an_agent("a b c") as agent:
            texts = agent.stream("go").text()
            first = next(texts)
            in_child(lambda: [print("child:", text, flush=True) for text in texts])
            print("parent:", first + "".join(texts))
    """)
    # What the child's copy had already got from the loop, it may still read.
    assert said[-2:] == ["child: CLOSED", "parent: abc"]


def test_leaving_a_parent_s_agent_in_the_child_closes_nothing() -> None:
    said = run_forking("""
        with an_agent("one", "two") as agent, agent.session() as session:
            session.chat("go")

            def leave():
                session.close()
                agent.close()
                print("child: left", flush=True)

            in_child(leave)
            print("parent:", session.chat("go").text)
    """)
    assert said == ["child: left", "parent: two"]


def test_the_ids_of_a_child_share_no_random_characters_with_its_parents() -> None:
    said = run_forking("""
        from haptera.model.ids import new_entry_id
        new_entry_id()
        in_child(lambda: print(*(new_entry_id()[-10:] for _ in range(100)), flush=True))
        print(*(new_entry_id()[-10:] for _ in range(100)))
    """)
    child, parent = (set(line.split()) for line in said)
    assert len(child | parent) == 200
