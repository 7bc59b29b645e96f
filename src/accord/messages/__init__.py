"""All messages that are sent or kept between two steps: tensors with a JSON header."""

from accord.messages.base import (
    ADAPTER,
    BANK,
    CONTROL,
    MAP,
    NET,
    PUBLIC,
    SOURCE,
    TEACHER,
    Message,
    is_whole,
    kind_of,
    prefixed,
    unprefixed,
)
from accord.messages.briefing import (
    AttackHeader,
    Briefing,
    BriefingHeader,
    NetHeader,
    Origin,
    SummingSpec,
    TeacherHeader,
    TrainingSpec,
)
from accord.messages.client_state import Memory, MemoryHeader, State, StateHeader
from accord.messages.server_files import Features, FeaturesHeader, MapHeader, MapValues
from accord.messages.server_state import ServerState, ServerStateHeader
from accord.messages.upload import Upload, UploadHeader, expected_upload

__all__ = [
    "ADAPTER",
    "BANK",
    "CONTROL",
    "MAP",
    "NET",
    "PUBLIC",
    "SOURCE",
    "TEACHER",
    "AttackHeader",
    "Briefing",
    "BriefingHeader",
    "Features",
    "FeaturesHeader",
    "MapHeader",
    "MapValues",
    "Memory",
    "MemoryHeader",
    "Message",
    "NetHeader",
    "Origin",
    "ServerState",
    "ServerStateHeader",
    "State",
    "StateHeader",
    "SummingSpec",
    "TeacherHeader",
    "TrainingSpec",
    "Upload",
    "UploadHeader",
    "expected_upload",
    "is_whole",
    "kind_of",
    "prefixed",
    "unprefixed",
]
