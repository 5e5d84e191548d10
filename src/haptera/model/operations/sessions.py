"""What the sessions of a store can be asked, each named by its id or its name."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from haptera.model.json_types import JsonObject
from haptera.model.operations.operation import (
    CommandLine,
    Facts,
    Flag,
    Operation,
    Otherwise,
    Route,
)
from haptera.model.operations.selection import SessionSelection
from haptera.model.operations.texts import Name
from haptera.model.option import Option
from haptera.model.results import SessionOrder


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

    facts: ClassVar[Facts] = Facts(
        face="get",
        by_place=1,
        route=Route(
            method="GET",
            path="",
            name="get_session",
            rpc="session/get",
            summary="Describe a session.",
            scope="read",
        ),
    )


class ListSessions(SessionSelection, frozen=True, kw_only=True, tag="list"):
    """Which sessions to list; None is any."""

    facts: ClassVar[Facts] = Facts(face="list", by_hand=True)

    order: Annotated[
        SessionOrder,
        Option(
            "`updated`: the last updated first; `created`, `oldest`: the last or the first made "
            "first; `name`: by name, those without one last."
        ),
    ] = "updated"
    limit: Annotated[int | None, Option("Sessions on one page; None: all of them.", least=0)] = 50
    after: Annotated[str | None, Option("The id of the last session of the previous page.")] = None


class CountSessions(SessionSelection, frozen=True, kw_only=True, tag="count"):
    """Which sessions to count; None is any."""

    facts: ClassVar[Facts] = Facts(face="count", by_hand=True)


class SearchSessions(Operation, frozen=True, kw_only=True, tag="search"):
    """Find what was said: texts that hold every word, the best first.

    `swallow*` finds words that begin so. In scripts without spaces a run of characters is found
    wherever it stands.
    """

    facts: ClassVar[Facts] = Facts(
        face="search",
        by_place=1,
        command=CommandLine(
            name="search",
            help="Find what was said: texts that hold every word, the best first.",
            flags={
                "everywhere": Flag("--all", "In all folders, not this one only."),
                "limit": Flag("-n", least=1),
                "prefix": Flag("--prefix", "Words that begin so, as `*` behind each of them."),
            },
            lists=True,
        ),
    )

    text: Annotated[str, Meta(description="Words that were said.")]
    limit: Annotated[int, Meta(description="How many places are returned at most.")] = 20
    everywhere: Annotated[
        bool, Meta(description="Whether the sessions of all projects are searched.")
    ] = False
    prefix: Annotated[
        bool, Meta(description="Whether each word finds those that begin with it.")
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
        command=CommandLine(
            name="stats",
            help="Add up the messages, tokens, cost and time of a session.",
            lists=True,
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


class UntagSession(SessionsOperation, frozen=True, kw_only=True, tag="untag"):
    """Take tags off a session."""

    facts: ClassVar[Facts] = Facts(face="untag", by_place=2, rest="tags")

    tags: Annotated[tuple[str, ...], Meta(description="The tags.")] = ()


class TagSession(SessionsOperation, frozen=True, kw_only=True, tag="tag"):
    """Add tags to a session."""

    facts: ClassVar[Facts] = Facts(
        face="tag",
        by_place=2,
        rest="tags",
        command=CommandLine(name="tag", help="Add tags to a session."),
        otherwise=Otherwise("", UntagSession, "--remove", "Take these tags away."),
    )

    tags: Annotated[tuple[str, ...], Meta(description="The tags.")] = ()


class UpdateSession(SessionsOperation, frozen=True, kw_only=True, tag="update"):
    """Change facts of a session: the options of `update`, and nothing that was not given."""

    facts: ClassVar[Facts] = Facts(face="update", by_hand=True)

    changes: JsonObject


class SaveContext(SessionsOperation, frozen=True, kw_only=True, tag="save_context"):
    """Save what a person is looking at; fields with their default keep what was saved."""

    facts: ClassVar[Facts] = Facts(face="set_context", by_hand=True)

    context: JsonObject


class KeepSummary(SessionsOperation, frozen=True, kw_only=True, tag="keep_summary"):
    """Keep a summary of a session."""

    facts: ClassVar[Facts] = Facts(face="set_summary", by_hand=True)

    summary: JsonObject


class ForgetNote(Operation, frozen=True, kw_only=True, tag="forget_note"):
    """Take a note back, wherever its text was noted: new sessions do not get it any more.

    Sessions that have it keep it.
    """

    facts: ClassVar[Facts] = Facts(face="forget_note", by_hand=True)

    text: str


class ForkSession(SessionsOperation, frozen=True, kw_only=True, tag="fork"):
    """Go on from a message (itself included) in a new session."""

    facts: ClassVar[Facts] = Facts(
        face="fork",
        by_place=1,
        by_hand=True,
        route=Route(
            summary="Copy a session, up to a message or as a whole.",
            about="Where a copy ends, and its name.",
            fields={"after": ("at_message_id", Name), "name": ("name", Name)},
            status=201,
        ),
        command=CommandLine(
            name="fork",
            help="Copy a session, up to a message or as a whole; both go on independently.",
            flags={
                "after": Flag("--at", "The last message of the copy.", "MESSAGE"),
                "name": Flag("--name", "The name of the copy."),
            },
        ),
        slash=("/fork [NAME]", "go on in a copy of this session"),
    )

    after: Annotated[
        str | None,
        Meta(description="The last message of the copy; without one, the last of all."),
    ] = None
    name: Annotated[str | None, Meta(description="The name of the copy.")] = None


class ExportSession(SessionsOperation, frozen=True, kw_only=True, tag="export"):
    """What an export may be told."""

    facts: ClassVar[Facts] = Facts(
        face="export",
        by_place=1,
        by_hand=True,
        slash=("/export FILE [FORMAT]", "write the session to a file"),
    )

    to: Annotated[
        str,
        Option(
            "The format: archive, claude-code, codex, opencode, pi, openai, anthropic, markdown, "
            "html."
        ),
    ] = "archive"
    redact: Annotated[bool, Option("Whether secrets, paths and media are masked.")] = False


class ImportSession(Operation, frozen=True, kw_only=True, tag="import"):
    """Make a new session from a file; its format is recognised unless `of` names it."""

    facts: ClassVar[Facts] = Facts(face="import_from", by_hand=True)

    of: str | None = None
    name: str | None = None
    project: str | None = None
    metadata: JsonObject | None = None
    keep_origin: bool = False


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

    facts: ClassVar[Facts] = Facts(
        face="delete",
        by_place=1,
        needs_lease=True,
        route=Route(
            method="DELETE",
            path="",
            summary="Delete a session for good.",
            status=204,
            if_match=True,
        ),
        command=CommandLine(
            name="delete",
            help="Delete a session for good. `archive` only takes it out of the lists.",
            question="Delete {title!r} ({id}) for good?",
            done="deleted {reference}",
            is_exact=True,
        ),
    )


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

    facts: ClassVar[Facts] = Facts(
        face="repair",
        command=CommandLine(
            name="repair", help="Derive the index of all sessions again from their logs."
        ),
    )


class PruneSessions(Operation, frozen=True, kw_only=True, tag="prune"):
    """Delete the sessions of this project that were not updated for a number of days.

    Returns those that it deletes; with `dry_run` it deletes nothing. Nothing else ever deletes
    a session by its age.
    """

    facts: ClassVar[Facts] = Facts(face="prune")

    days: Annotated[float, Meta(description="For how many days they were not updated.")]
    dry_run: Annotated[bool, Meta(description="Whether nothing is deleted.")] = False
