"""`haptera serve` as it is by default, but that owners of keys can have pages fetched.

python -m tests.server.fetching_server PORT …: on this loopback port is what stands for the web.
"""

import asyncio
import os
import socket
import sys

from haptera import Agent
from haptera.access.administration import state_folder
from haptera.access.configured import configured_store
from haptera.server import Access, create_app, new_token
from haptera.server.key_file import KeyFile
from haptera.server.serving import HttpServer, ServerState, announced, listen, run_process, url_of
from haptera.settings import Permissions
from haptera.tools import web_fetch_tool
from haptera.tools.web import WebFetch
from tests.server.processes import MODEL

_PUBLIC = "93.184.216.34"


async def _serve(web: int) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        del host, port
        return [_PUBLIC]

    def connect(address: str, port: int, seconds: float) -> socket.socket:
        del address, port
        return socket.create_connection(("127.0.0.1", web), timeout=seconds)

    fetch = WebFetch(resolve=resolve, connect=connect)
    agents: dict[str, Agent] = {}

    def agent_of(owner: str) -> Agent:
        if owner not in agents:
            agents[owner] = Agent(
                model=MODEL,
                store=configured_store(),
                owner=owner,
                tools=[web_fetch_tool(fetch)],
                permissions=Permissions(allow=("web_fetch",)),
            )
        return agents[owner]

    sock = listen("127.0.0.1", 0, is_protected=False)
    state = ServerState(url=url_of(sock, has_tls=False), pid=os.getpid(), token=new_token())
    agent = agent_of("local")
    access = Access(state.token, owner=agent.owner, keys=KeyFile(state_folder()).keys)
    app = create_app(agent, access=access, agents=agent_of)
    with announced(state_folder(), state) as path:
        sys.stderr.write(f"{state.url}/#token={state.token}\nthe token is in {path}\n")
        sys.stderr.flush()
        await HttpServer(app).serve(sockets=[sock])
    await asyncio.gather(*(each.close() for each in agents.values()))


if __name__ == "__main__":
    run_process(_serve(int(sys.argv[1])))
