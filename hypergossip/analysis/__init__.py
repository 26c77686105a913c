"""The paper's theorems as a tool: what a problem's constants are, which steps they allow, which to take."""

from .analysis import Analysis, Limits, analyse
from .foresight import Finding
from .recommendation import Recommendation, recommend
from .settings import Choice, Settings

__all__ = ["Analysis", "Choice", "Finding", "Limits", "Recommendation", "Settings", "analyse", "recommend"]
