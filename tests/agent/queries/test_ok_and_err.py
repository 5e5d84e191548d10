"""run_agent_result: success and failure as values, the same in every style."""

from typing import Any

import haptera
import haptera.sync
from haptera import AbortController, Err, ErrorCode, Ok
from haptera.model.errors import ProviderError
from haptera.testing import ScriptedProvider, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import MODEL, failure_of

REFUSED = ProviderError(ErrorCode.AUTH, "no key", basis="status")


def options_for(*steps: Step) -> dict[str, Any]:
    return {"model": MODEL, "providers": [ScriptedProvider(steps)], "environment": {}}


async def test_an_answer_is_ok() -> None:
    outcome = await haptera.run_agent_result("go", **options_for(says("hello")))
    match outcome:
        case Ok(value=result):
            assert (result.text, result.stop_reason) == ("hello", "complete")
        case Err():
            raise AssertionError(outcome)


async def test_a_failure_is_the_error_that_run_agent_raises() -> None:
    raised = await failure_of(haptera.run_agent("go", **options_for(REFUSED)))
    outcome = await haptera.run_agent_result("go", **options_for(REFUSED))
    assert isinstance(outcome, Err)
    assert outcome.error.report == raised.report
    assert outcome.error.result is not None


async def test_an_abort_and_a_wrong_configuration_are_failures_too() -> None:
    controller = AbortController()
    controller.abort()
    stopped = await haptera.run_agent_result("go", signal=controller.signal)
    assert isinstance(stopped, Err)
    assert stopped.error.code is ErrorCode.ABORTED
    wrong = await haptera.run_agent_result("go", model="unknown/x", environment={})
    assert isinstance(wrong, Err)
    assert wrong.error.code in {ErrorCode.CONFIG_INVALID, ErrorCode.CONFIG_MISSING}


def test_the_blocking_style_is_the_same() -> None:
    fine = haptera.sync.run_agent_result("go", **options_for(says("hello")))
    assert isinstance(fine, Ok)
    assert fine.value.text == "hello"
    failed = haptera.sync.run_agent_result("go", **options_for(REFUSED))
    assert isinstance(failed, Err)
    assert failed.error.code is ErrorCode.AUTH
