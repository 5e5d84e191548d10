"""Stop an answer; what came is kept, and the conversation goes on."""

import asyncio

from haptera import AbortSignal, Agent, AgentError, ErrorCode, TextDelta


async def main() -> None:
    """Stop by hand, then by the clock."""
    async with Agent() as agent, agent.session() as session:
        stream = session.stream("Count slowly to one hundred.", on_abort="return")
        async with stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    session.abort("that is enough")
            result = await stream.result()
        print(result.stop_reason, repr(result.text))

        try:
            await session.chat("Go on.", signal=AbortSignal.timeout(30))
        except AgentError as error:
            if error.code is not ErrorCode.ABORTED:
                raise
            print("stopped by the clock:", error.result and error.result.text)
        print(len(session.messages), "messages are kept")


if __name__ == "__main__":
    asyncio.run(main())
