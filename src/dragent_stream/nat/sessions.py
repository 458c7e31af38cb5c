"""NAT's sessions, made safe for a server: each run sees its own request, its producer is owned, its errors are told.

NAT (1.6 to 1.9) restores, for every run of a per-user workflow, the context in which the workflow was built: the first
request's headers, cookies, tokens, conversation. Its streams let their producer run on when the client has gone. It
sends exception texts to clients and logs no traceback.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from typing import Any

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from dragent_stream.nat.agent_run import run_options
from dragent_stream.nat.chat_stream import ChatStream, chat_stream
from dragent_stream.nat.converters import batch_to_str
from dragent_stream.nat.failures import (
    AgentFailedError,
    InputError,
    ServerStoppingError,
    TooManyRunsError,
    as_told,
)
from dragent_stream.nat.identity import IdentityError, signed_user
from dragent_stream.nat.imports import (
    ChatResponse,
    ChatResponseChunk,
    ContextState,
    RequestAttributes,
    Session,
    SessionManager,
    WorkflowBuilder,
)
from dragent_stream.nat.open_runs import OpenRuns, runs_of_request
from dragent_stream.options import ConverterOptions
from dragent_stream.response import DRAgentEventResponse

__all__ = ["RequestSession", "RequestSessionManager"]

STOPPED = "the run was stopped, because the server is shutting down"


def _request_variables() -> list[ContextVar[Any]]:
    """What NAT's context holds of one request."""
    state: Any = ContextState.get()
    return [
        state._metadata,
        state.conversation_id,
        state.user_message_id,
        state.user_id,
        state.workflow_run_id,
        state.workflow_trace_id,
        state.observability_trace_id,
        state.workflow_parent_id,
        state.workflow_parent_name,
        state.user_input_callback,
        state.user_auth_callback,
    ]


def _restore_only(workflow: Any, wanted: Callable[[ContextVar[Any], Any], bool]) -> None:
    """Choose what NAT restores, of the context in which the workflow was built, for each of its runs."""
    saved = workflow._saved_context
    workflow._saved_context = {variable: value for variable, value in saved.items() if wanted(variable, value)}


class RequestSessionManager(SessionManager):
    """NAT's sessions of one workflow.

    Attributes:
        runs: The server's open runs.
        max_users: For how many users a per-user workflow is kept.
        options: Of every run.
    """

    runs: OpenRuns
    max_users: int
    options: ConverterOptions

    @classmethod
    async def opened(
        cls,
        config: Any,
        builder: WorkflowBuilder,
        entry_function: str | None,
        *,
        runs: OpenRuns,
        max_users: int,
        options: ConverterOptions,
    ) -> "RequestSessionManager":
        """The sessions of a workflow; NAT's own limit of 8 runs is off, because `runs` has the limit."""
        manager: Any = await cls.create(
            config=config, shared_builder=builder, entry_function=entry_function, max_concurrency=0
        )
        manager.runs, manager.max_users, manager.options = runs, max_users, options
        if manager._shared_workflow is not None:
            of_request = {*_request_variables(), chat_stream}
            _restore_only(manager._shared_workflow, lambda variable, value: variable not in of_request)
        return manager

    @contextlib.asynccontextmanager
    async def session(
        self,
        user_id: str | None = None,
        http_connection: HTTPConnection | None = None,
        user_message_id: str | None = None,
        conversation_id: str | None = None,
        user_input_callback: Any = None,
        user_authentication_callback: Any = None,
    ) -> AsyncGenerator[Session, None]:
        """A session, as NAT opens it; a signed user goes before every other credential of the connection.

        Raises:
            IdentityError: A credential is not valid.
            AgentFailedError: The session cannot be opened.
        """
        state: Any = self._context_state
        if http_connection is not None:
            user_id = signed_user(http_connection, self) or user_id
            state._metadata.set(RequestAttributes())
        async with contextlib.AsyncExitStack() as stack:
            try:
                session: Session = await stack.enter_async_context(
                    super().session(
                        user_id=user_id,
                        http_connection=http_connection,
                        user_message_id=user_message_id,
                        conversation_id=conversation_id,
                        user_input_callback=user_input_callback,
                        user_authentication_callback=user_authentication_callback,
                    )
                )
            except (AgentFailedError, IdentityError):
                raise
            except Exception as error:
                raise as_told(error, self.options) from None
            # NAT 1.6 takes the two ids and does nothing with them; a header of the request goes before them.
            for variable, value in ((state.conversation_id, conversation_id), (state.user_message_id, user_message_id)):
                if value is not None and variable.get() is None:
                    variable.set(value)
            yield RequestSession(self, session, http_connection)

    async def _get_or_create_per_user_builder(self, user_id: str) -> Any:
        users: dict[str, Any] = self._per_user_builders
        known = user_id in users
        if not known and len(users) >= self.max_users:
            await self._drop_idle_user()
        before = contextvars.copy_context()
        built: Any = await super()._get_or_create_per_user_builder(user_id)
        if not known:
            # What the request in whose session it was built had set is not the workflow's.
            unset = object()
            _restore_only(built[1], lambda variable, value: before.get(variable, unset) is not value)
        return built

    def kept(self, user_id: str | None) -> Any:
        """What is kept for a user of a per-user workflow; None for nobody."""
        return self._per_user_builders.get(user_id or "")

    async def _drop_idle_user(self) -> None:
        """Make room for one user more: the one who has been idle for longest goes."""
        users: dict[str, Any] = self._per_user_builders
        async with self._per_user_builders_lock:
            idle = [user_id for user_id, info in users.items() if info.ref_count == 0]
            if not idle:
                raise TooManyRunsError(f"the server runs for its limit of {self.max_users} users; try again")
            info = users.pop(min(idle, key=lambda user_id: users[user_id].last_activity))
        await info.builder.__aexit__(None, None, None)


class RequestSession(Session):
    """A session whose runs see the request that opened it, also when NAT has closed the session before they begin."""

    def __init__(self, manager: RequestSessionManager, session: Session, connection: HTTPConnection | None) -> None:
        given: Any = session
        super().__init__(
            session_manager=manager, workflow=session.workflow, semaphore=given._semaphore, user_id=session.user_id
        )
        self._manager = manager
        self._over_websocket = isinstance(connection, WebSocket)
        self._request_values = [(variable, variable.get()) for variable in _request_variables()]

    @contextlib.asynccontextmanager
    async def run(self, message: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """A run as NAT starts it. Leaving the block cancels the task that pulls the run's results.

        Raises:
            InputError: The workflow cannot take the message.
            TooManyRunsError: Over a websocket: the limit is reached.
        """
        self._check_input(message)
        for variable, value in self._request_values:
            variable.set(value)
        run_options.set(self._manager.options)
        user = self._manager.kept(self.user_id)
        with contextlib.ExitStack() as stack:
            if self._over_websocket:  # one connection, many runs; a request is counted where it comes in
                stack.enter_context(self._manager.runs.admitted())
            if user is not None:
                user.ref_count += 1
                stack.callback(_leave, user)
            async with super().run(message, *args, **kwargs) as runner:
                owned = _OwnedRunner(runner, self._manager.options, as_text=self._over_websocket)
                stack.enter_context(self._manager.runs.stopped_by(owned.stop))
                if (runs := runs_of_request.get()) is not None:
                    runs.append(owned.leave)
                try:
                    yield owned
                finally:
                    owned.leave()

    def _check_input(self, message: Any) -> None:
        entry: Any = self.workflow
        try:
            entry._entry_fn._convert_input(message)
        except (TypeError, ValueError) as error:
            fields = ", ".join(entry.input_schema.model_fields) or "nothing"
            raise InputError(
                f"this workflow takes {fields}, and a {type(message).__name__} cannot become that ({_first_line(error)}); "
                "its /generate route takes these fields, the chat routes and /agui need a workflow that takes a chat"
            ) from None


def _leave(user: Any) -> None:
    user.ref_count -= 1


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ or error
    return (str(cause) or type(cause).__name__).partition("\n")[0]


class _OwnedRunner:
    """NAT's runner, whose results are pulled by one task that can be stopped.

    Args:
        runner: NAT's.
        options: Say what is told of an exception.
        as_text: Give the text of a stream of AG-UI batches, for a reader that knows no events.
    """

    def __init__(self, runner: Any, options: ConverterOptions, *, as_text: bool) -> None:
        self._runner = runner
        self._options = options
        self._as_text = as_text
        self._producer: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._stopping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def leave(self) -> None:
        """Nobody waits for results any more."""
        if self._producer is not asyncio.current_task():
            self._cancel()

    def stop(self) -> None:
        """End the run with an error, in order: the server goes down."""
        self._stopping = self._stopping or not self._cancelled
        self._cancel()

    def _cancel(self) -> None:
        # Once: a second cancellation would disturb what the first one closes.
        if self._producer is not None and not self._cancelled:
            self._cancelled = True
            self._producer.cancel()

    async def result(self, to_type: Any = None) -> Any:
        """The workflow's one result; a chat completion says which model made it, and what it used."""
        stream = ChatStream()
        chat_stream.set(stream)
        with self._telling():
            answer: Any = await self._runner.result(to_type)
        if isinstance(answer, ChatResponse) and stream.model:
            answer.model = stream.model
            answer.usage = stream.usage or answer.usage
        return answer

    async def result_stream(self, to_type: Any = None) -> AsyncGenerator[Any, None]:
        """The workflow's results.

        A stream of batches gives one item where `to_type` is a whole answer: NAT 1.6 asks for that over a websocket.
        """
        batches = self._runner._entry_fn.streaming_output_type is DRAgentEventResponse
        whole = batches and to_type not in (None, DRAgentEventResponse, ChatResponseChunk)
        texts: list[str] = []
        with self._telling():
            async with contextlib.aclosing(self._runner.result_stream(None if whole else to_type)) as items:
                async for item in items:
                    if whole:
                        texts.append(batch_to_str(item))
                    elif not (self._as_text and isinstance(item, DRAgentEventResponse)):
                        yield item
                    elif text := batch_to_str(item):
                        yield text
            if whole:
                text = "".join(texts)
                # Over a websocket NAT 1.6 shows the JSON of what is no text and no chat.
                as_text = self._as_text and to_type is not ChatResponse
                yield text if as_text else self._runner.convert(text, to_type)

    @contextlib.contextmanager
    def _telling(self) -> Generator[None]:
        task = self._producer = asyncio.current_task()
        if self._stopping:
            raise ServerStoppingError(STOPPED)
        try:
            yield
        except asyncio.CancelledError:
            if not self._stopping or task is None:
                raise
            task.uncancel()
            raise ServerStoppingError(STOPPED) from None
        except Exception as error:
            raise as_told(error, self._options) from None
