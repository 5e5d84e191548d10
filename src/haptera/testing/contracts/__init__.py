"""Contract suites: one per building block, and one for model clients, for substitutes of your own.

    report = await conversation_contract(MyConversation)
    assert report.is_passed, report

Each takes a function that makes a new subject for each check, and returns a report that names the
promises that were kept and broken. The promises stand in the docstring of the interface.
"""

from haptera.testing.contracts.approvals import approval_coordinator_contract
from haptera.testing.contracts.channel import control_channel_contract
from haptera.testing.contracts.conversations import conversation_contract
from haptera.testing.contracts.model_clients import model_client_contract
from haptera.testing.contracts.queries import query_runner_contract
from haptera.testing.contracts.requests import request_builder_contract
from haptera.testing.contracts.streams import stream_processor_contract
from haptera.testing.contracts.tool_sets import tool_registry_contract
from haptera.testing.contracts.turns import turn_runner_contract

__all__ = [
    "approval_coordinator_contract",
    "control_channel_contract",
    "conversation_contract",
    "model_client_contract",
    "query_runner_contract",
    "request_builder_contract",
    "stream_processor_contract",
    "tool_registry_contract",
    "turn_runner_contract",
]
