"""The one place that knows where NAT keeps its names, and which versions are served.

Everything else in this package imports NAT, and what else the extra brings, through here: a move inside NAT is one
changed line, and what is absent is said in one way.
"""

from importlib import metadata

from dragent_stream.errors import DragentStreamError, missing_extra

__all__ = [
    "MESSAGES_KEEP_TOOLS",
    "NAT_VERSION",
    "REPLAYS_HISTORY",
    "WORKFLOW_PARENT",
    "BaseCallbackHandler",
    "Builder",
    "ChatRequest",
    "ChatRequestOrMessage",
    "ChatResponse",
    "ChatResponseChunk",
    "ChatResponseChunkChoice",
    "ChatUsage",
    "ChoiceDelta",
    "ChoiceDeltaToolCall",
    "ChoiceDeltaToolCallFunction",
    "Config",
    "Context",
    "ContextState",
    "FastApiFrontEndConfig",
    "FunctionInfo",
    "GlobalTypeConverter",
    "IntermediateStep",
    "LLMFrameworkEnum",
    "Message",
    "RequestAttributes",
    "ResponseSerializable",
    "Runnable",
    "RunnableGenerator",
    "RunnableLambda",
    "Session",
    "SessionManager",
    "StepAdaptor",
    "StepAdaptorConfig",
    "StepAdaptorMode",
    "ToolCallAgentWorkflowConfig",
    "TypeRegistry",
    "UnsupportedNatError",
    "UserInfo",
    "UserManager",
    "WorkflowBuilder",
    "check_version",
    "jwt",
    "register_configure_hook",
    "register_front_end",
    "register_function",
    "register_per_user_function",
    "tool_calling_agent_workflow",
]

LOWEST, ABOVE = (1, 6), (1, 10)


class UnsupportedNatError(DragentStreamError, ImportError):
    """The installed NAT is older or newer than the versions that this package was run with."""


def check_version(version: str) -> tuple[int, int]:
    """Return (major, minor) of a NAT version that is served.

    Raises:
        UnsupportedNatError: For every other version.
    """
    parts = version.split(".")
    number = (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else (0, 0)
    if not LOWEST <= number < ABOVE:
        raise UnsupportedNatError(
            f"nvidia-nat-core {version} is installed, but dragent_stream.nat serves 1.6 to 1.9; "
            "install one of these: pip install 'nvidia-nat-core>=1.6,<1.10' 'nvidia-nat-langchain[openai]>=1.6,<1.10'"
        )
    return number


try:
    NAT_VERSION = check_version(metadata.version("nvidia-nat-core"))

    import jwt
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda
    from langchain_core.tracers.context import register_configure_hook
    from nat.builder.builder import Builder
    from nat.builder.context import Context, ContextState
    from nat.builder.framework_enum import LLMFrameworkEnum
    from nat.builder.function_info import FunctionInfo
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.cli.register_workflow import register_front_end, register_function, register_per_user_function
    from nat.cli.type_registry import TypeRegistry
    from nat.data_models.api_server import (
        ChatRequest,
        ChatRequestOrMessage,
        ChatResponse,
        ChatResponseChunk,
        ChatResponseChunkChoice,
        ChoiceDelta,
        ChoiceDeltaToolCall,
        ChoiceDeltaToolCallFunction,
        Message,
        ResponseSerializable,
    )
    from nat.data_models.api_server import Usage as ChatUsage
    from nat.data_models.config import Config
    from nat.data_models.intermediate_step import IntermediateStep
    from nat.data_models.step_adaptor import StepAdaptorConfig, StepAdaptorMode
    from nat.data_models.user_info import UserInfo
    from nat.front_ends.fastapi.fastapi_front_end_config import FastApiFrontEndConfig
    from nat.front_ends.fastapi.step_adaptor import StepAdaptor
    from nat.plugins.langchain.agent.tool_calling_agent.register import (
        ToolCallAgentWorkflowConfig,
        tool_calling_agent_workflow,
    )
    from nat.runtime.session import Session, SessionManager
    from nat.runtime.user_manager import UserManager
    from nat.runtime.user_metadata import RequestAttributes
    from nat.utils.type_converter import GlobalTypeConverter
except metadata.PackageNotFoundError as error:
    raise missing_extra("nat", ImportError(name="nvidia-nat-core")) from error
except UnsupportedNatError:
    raise
except ImportError as error:
    raise missing_extra("nat", error) from error

WORKFLOW_PARENT = "root"
"""`function_ancestry.parent_id` of the function that a run was started with; its tools and sub-agents have others."""

MESSAGES_KEEP_TOOLS = "tool_calls" in Message.model_fields
"""NAT 1.9 keeps tool calls and tool results in a request; older versions know plain messages only."""

REPLAYS_HISTORY = NAT_VERSION < (1, 7)
"""NAT 1.6 streams the assistant messages of the request again, unless they carry ids."""
