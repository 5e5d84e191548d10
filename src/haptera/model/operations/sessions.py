"""What the sessions of a store can be asked, each named by its id or its name."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from haptera.model.operations.operation import (
    CommandLine,
    Facts,
    Flag,
    Operation,
    Route,
)


class SessionsOperation(Operation, frozen=True, kw_only=True):
    """What is asked of one session, whether it is open or not."""

    reference: Annotated[str, Meta(description="The id of the session, or its name.")]


class ShareSession(SessionsOperation, frozen=True, kw_only=True, tag="share"):
    """Make a link under which others may read a session; the result has its token, once.

    The link shows the session as it is now, or (with `live`) as it is when it is read. It is
    valid when this returns. Forks and imports of the session do not have it, and it ends with
    the session.

    Raises:
        ConfigError: CONFIG_INVALID naming an option whose value is wrong.
        SessionError: NOT_FOUND; BUSY when the process that holds the session does not answer,
            or the session has 100 valid links.

    """

    facts: ClassVar[Facts] = Facts(
        face="share",
        by_place=1,
        route=Route(
            path="/shares",
            rpc="share/create",
            summary="Make a link under which others may read a session; its token is shown once.",
            body="NewShare",
            about="A link to make.",
            status=201,
            tag="shares",
        ),
    )

    days: Annotated[float, Meta(description="How many days the link is valid.", gt=0, le=365)] = 7
    redact: Annotated[
        bool, Meta(description="Whether secrets, paths, media and notes to the model are masked.")
    ] = True
    live: Annotated[
        bool,
        Meta(
            description="Whether it shows the session as it is, and not as it was when it was "
            "shared."
        ),
    ] = False


class ListShares(SessionsOperation, frozen=True, kw_only=True, tag="shares"):
    """List the valid links to a session, the first made first; without their tokens."""

    facts: ClassVar[Facts] = Facts(
        face="shares",
        by_place=1,
        route=Route(
            method="GET",
            path="/shares",
            name="list_shares",
            rpc="share/list",
            summary="List the valid links to a session, without their tokens.",
            scope="read",
            tag="shares",
        ),
        command=CommandLine(
            name="shares", help="List the links to a session that are valid.", lists=True
        ),
    )


class RevokeShare(SessionsOperation, frozen=True, kw_only=True, tag="unshare"):
    """Revoke a link, for good. It shows nothing any more when this returns.

    Raises:
        SessionError: NOT_FOUND when there is no such session or no such link; BUSY when the
            process that holds the session does not answer. That process is asked to revoke it
            all the same.

    """

    facts: ClassVar[Facts] = Facts(
        face="unshare",
        by_place=2,
        route=Route(
            method="DELETE",
            path="/shares/{share_id}",
            name="revoke_share",
            rpc="share/revoke",
            summary="Revoke a link, for good.",
            status=204,
            tag="shares",
        ),
        command=CommandLine(
            name="unshare",
            help="Revoke a link to a session; `haptera sessions shares` lists them.",
            metavar="SHARE",
            done="{share_id} is revoked",
            is_exact=True,
        ),
    )

    share_id: Annotated[str, Meta(description="The id of the link.")]


class ReadShared(Operation, frozen=True, kw_only=True, tag="shared"):
    """Return what a link shows.

    Raises:
        SessionError: NOT_FOUND when the token is not valid, has expired or was revoked.

    """

    facts: ClassVar[Facts] = Facts(face="shared", by_place=1)

    token: Annotated[str, Meta(description="The token of the link.")]


class GetSession(SessionsOperation, frozen=True, kw_only=True, tag="get"):
    """Describe one session.

    Raises:
        SessionError: NOT_FOUND naming the project, and where else there is such a name.

    """

    facts: ClassVar[Facts] = Facts(face="get", by_place=1)


class SearchSessions(Operation, frozen=True, kw_only=True, tag="search"):
    """Find what was said: texts that hold every word, the best first."""

    facts: ClassVar[Facts] = Facts(face="search", by_place=1)

    text: Annotated[str, Meta(description="Words that were said.")]
    limit: Annotated[int, Meta(description="How many places are returned at most.")] = 20
    everywhere: Annotated[
        bool, Meta(description="Whether the sessions of all projects are searched.")
    ] = False


class ListChildren(SessionsOperation, frozen=True, kw_only=True, tag="children"):
    """List the sessions that were forked from one, and those that its tool calls made."""

    facts: ClassVar[Facts] = Facts(face="children", by_place=1)


class DescribeTree(SessionsOperation, frozen=True, kw_only=True, tag="tree"):
    """Describe a session with those of its sub-agents, and theirs; forks are not among them."""

    facts: ClassVar[Facts] = Facts(face="tree", by_place=1)


class CountUse(SessionsOperation, frozen=True, kw_only=True, tag="stats"):
    """Add up messages, tokens, cost and duration over the log of a session.

    With `children` the sessions of its sub-agents are added, too. Without it what they used is
    not in the numbers: adding up the numbers of all sessions counts everything once.
    """

    facts: ClassVar[Facts] = Facts(
        face="stats",
        by_place=1,
        route=Route(
            summary="Add up the tokens, cost and time of a session.",
            method="GET",
            path="/usage",
            name="session_usage",
            rpc="session/usage",
            scope="read",
            fields={"children": ("", None)},
        ),
        slash=("/usage", "tokens and cost of this session"),
    )

    children: Annotated[
        bool, Meta(description="Whether the sessions of its sub-agents are added, too.")
    ] = False


class ListMessages(SessionsOperation, frozen=True, kw_only=True, tag="messages"):
    """Return messages with their time, parent, model, cost and error, oldest first.

    With `before` the last ones before a message, with `after` the first ones after it. With
    `through` the messages as they were after this `seq` of the log.

    Raises:
        SessionError: NOT_FOUND; MESSAGE_NOT_FOUND when there is no such message.

    """

    facts: ClassVar[Facts] = Facts(face="messages", by_place=1)

    limit: Annotated[
        int | None, Meta(description="How many are returned at most; None: all of them.")
    ] = None
    before: Annotated[
        str | None, Meta(description="The id of a message: the last ones before it are returned.")
    ] = None
    after: Annotated[
        str | None, Meta(description="The id of a message: the first ones after it are returned.")
    ] = None
    through: Annotated[
        int | None, Meta(description="The `seq` of the log after which they are read.")
    ] = None


class ReadContext(SessionsOperation, frozen=True, kw_only=True, tag="context"):
    """Return what a person was looking at when it was last saved."""

    facts: ClassVar[Facts] = Facts(face="context", by_place=1)


class ReadSummary(SessionsOperation, frozen=True, kw_only=True, tag="summary"):
    """Return the summary of a session, when one was made."""

    facts: ClassVar[Facts] = Facts(face="summary", by_place=1)


class FindPrompt(SessionsOperation, frozen=True, kw_only=True, tag="find_prompt"):
    """Find a prompt that was sent with an id of its sender's choice; None without one."""

    facts: ClassVar[Facts] = Facts(face="find_prompt", by_place=2)

    message_id: Annotated[str, Meta(description="The id that the sender gave the message.")]


class GroupUse(SessionsOperation, frozen=True, kw_only=True, tag="usage"):
    """Add up what a session used for each day (UTC, such as 2026-05-17), or for each model.

    A query, its tools and a compaction count for the model of the turn before their end.
    """

    facts: ClassVar[Facts] = Facts(face="usage", by_place=1)

    by: Annotated[
        Literal["day", "model"],
        Meta(description="What is added up: each day (UTC), or each model."),
    ] = "day"


class ListNotes(Operation, frozen=True, kw_only=True, tag="notes"):
    """List the notes of this project, the oldest first; a text comes once."""

    facts: ClassVar[Facts] = Facts(face="notes")


class RenameSession(SessionsOperation, frozen=True, kw_only=True, tag="rename"):
    """Give a session another name; None takes its name away."""

    facts: ClassVar[Facts] = Facts(
        face="rename", by_place=2, slash=("/name NAME", "name this session")
    )

    name: Annotated[str | None, Meta(description="The new name; None takes it away.")]


class TagSession(SessionsOperation, frozen=True, kw_only=True, tag="tag"):
    """Add tags to a session."""

    facts: ClassVar[Facts] = Facts(face="tag", by_place=2, rest="tags")

    tags: Annotated[tuple[str, ...], Meta(description="The tags.")] = ()


class UntagSession(SessionsOperation, frozen=True, kw_only=True, tag="untag"):
    """Take tags off a session."""

    facts: ClassVar[Facts] = Facts(face="untag", by_place=2, rest="tags")

    tags: Annotated[tuple[str, ...], Meta(description="The tags.")] = ()


class ArchiveSession(SessionsOperation, frozen=True, kw_only=True, tag="archive"):
    """Put a session away, or (with `undo`) back.

    An archived session can still be opened; it is listed only when asked for. The sessions of
    its sub-agents go with it.
    """

    facts: ClassVar[Facts] = Facts(
        face="archive",
        by_place=1,
        command=CommandLine(
            name="archive",
            help="Take a session out of the lists; nothing is deleted.",
            flags={"undo": Flag("--undo", "Bring it back.")},
            is_exact=True,
        ),
    )

    undo: Annotated[bool, Meta(description="Whether it is brought back.")] = False


class TouchSession(SessionsOperation, frozen=True, kw_only=True, tag="touch"):
    """Make a session the last updated one."""

    facts: ClassVar[Facts] = Facts(face="touch", by_place=1)


class DeleteSession(SessionsOperation, frozen=True, kw_only=True, tag="delete"):
    """Delete a session with its payloads, its index and the sessions that its calls made.

    It is closed first if this agent has it open. Forks of it stay whole: as long as there is
    one, the log is kept for it, and nothing else can find it.

    Raises:
        SessionError: NOT_FOUND, BUSY when another process holds it.

    """

    facts: ClassVar[Facts] = Facts(face="delete", by_place=1)


class VerifySession(SessionsOperation, frozen=True, kw_only=True, tag="verify"):
    """Read a whole session and say what cannot be read, and whether it can be opened."""

    facts: ClassVar[Facts] = Facts(
        face="verify",
        by_place=1,
        command=CommandLine(
            name="verify",
            help="Read a whole session and say what is damaged; the exit code is 1 then.",
        ),
    )


class RepairIndex(Operation, frozen=True, kw_only=True, tag="repair"):
    """Derive the index again from the logs; returns how many sessions it holds.

    Damaged records are kept where they are, and `verify` goes on reporting them.
    """

    facts: ClassVar[Facts] = Facts(face="repair")


class PruneSessions(Operation, frozen=True, kw_only=True, tag="prune"):
    """Delete the sessions of this project that were not updated for a number of days.

    Returns those that it deletes; with `dry_run` it deletes nothing. Nothing else ever deletes
    a session by its age.
    """

    facts: ClassVar[Facts] = Facts(face="prune")

    days: Annotated[float, Meta(description="For how many days they were not updated.")]
    dry_run: Annotated[bool, Meta(description="Whether nothing is deleted.")] = False
