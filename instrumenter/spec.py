"""Software metrics as a user describes them: what event, where, and what it adds to its counter."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Event = Literal["call", "entry", "exit", "write", "loop", "branch", "alloc", "alloc_bytes"]

# Which keys say what each event is about (the first) and which only narrow it down.
_SUBJECT: dict[str, tuple[str, ...]] = {
    "call": ("callee",),
    "entry": ("function",),
    "exit": ("function",),
    "write": ("variable", "field"),
    "loop": ("function",),
    "branch": ("function",),
    "alloc": (),
    "alloc_bytes": (),
}


class MetricSpec(BaseModel):
    """One software metric: a counter that grows when its event happens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: Event = Field(
        description="call: a direct call of `callee`; entry, exit: of `function`; write: an assignment, ++ or -- to "
        "`variable` (or any part of it) or to a struct `field`; loop: an iteration of a loop of `function`; "
        "branch: an if or ?: of `function` whose condition is true; alloc, alloc_bytes: calls of "
        "malloc, calloc, realloc and aligned_alloc, and the bytes they ask for"
    )
    function: str | None = Field(
        None,
        description="Function the event is about (entry, exit, loop, branch), or in which it must happen",
    )
    callee: str | None = Field(None, description="Function whose calls are counted (event: call)")
    variable: str | None = Field(
        None, description="Variable whose writes are counted: a global, a static, or a local of `function`"
    )
    field: str | None = Field(
        None,
        description="Struct field whose writes are counted: `name`, or `struct_tag.name` if several have it",
    )
    file: str | None = Field(
        None, description="Count only events in this source file (name without directories)"
    )
    line: int | None = Field(None, ge=1, description="Count only events that begin on this source line")
    add: str | None = Field(
        None,
        description="C expression added instead of 1; evaluated where the event happens, before it",
    )

    @model_validator(mode="after")
    def _complete(self) -> MetricSpec:
        subjects = _SUBJECT[self.event]
        given = [name for name in subjects if getattr(self, name) is not None]
        if subjects and len(given) != 1 and not (self.event in ("loop", "branch") and self.line):
            wanted = " or ".join(f"`{name}:`" for name in subjects)
            got = " and ".join(given) or "none of them"
            raise ValueError(f"event `{self.event}` needs exactly one of {wanted}, got {got}")
        for name in ("callee", "variable", "field"):
            if getattr(self, name) is not None and name not in subjects:
                raise ValueError(f"`{name}:` means nothing for event `{self.event}`")
        if self.event == "alloc_bytes" and self.add is not None:
            raise ValueError("`add:` means nothing for event `alloc_bytes`: it adds the bytes asked for")
        return self

    def describe(self) -> str:
        """The metric in words, for reports."""
        about = self.callee or self.function or self.variable or self.field or "heap"
        return f"{self.event} {about}" + (f" += {self.add}" if self.add else "")
