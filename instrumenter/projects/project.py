"""Builds programs by a project's own build command, which runs with the wrapper as compiler in a copy of the project.

A `ProjectRecipe` is used like a `Recipe` of sources (`instrumenter.building.program_build`). Each set of metrics has
its own copy, kept in the cache for a day. For other code layouts the program is only linked again, by the command
that linked it. If that is impossible (the build changed the program after linking it), the whole build is repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from common import build_cache
from common.atomic_files import workspace
from common.file_cache import cache_directory, object_path, read_checked, write_checked
from instrumenter.building.program_build import (
    AnySampler,
    Build,
    HostSamplerConfig,
    generator_digest,
    keep_build,
    load_build,
    write_facts,
)
from instrumenter.building.relink import COMMAND_NAME
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain, compiler_version
from instrumenter.projects.built_tree import BuiltTree, Project
from instrumenter.projects.made_files import may_be_of_another_compiler
from instrumenter.projects.project_copy import tree_digest
from instrumenter.projects.project_tree import environment_digest
from instrumenter.spec.counter_layout import Placement
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.wrapper.environment_spec import HostSamplerSpec, SamplerSpec, WrapperSpec
from instrumenter.wrapper.outside_files import outside_digest


@dataclass(frozen=True)
class ProjectRecipe:
    """A project's program without its metrics; ``tree``: `tree_digest` of the project's directory; ``environment``:
    `environment_digest` of the build.

    ``target``, ``relinkable``, ``null_control`` and ``atomic``: as in `instrumenter.building.program_build.Recipe`.
    """

    project: Project
    tree: str
    environment: str
    sampler: AnySampler | None = None
    placement: Placement = "packed"
    volatile: bool = True
    target: str = GUEST_TARGET
    relinkable: bool = False
    null_control: bool = False
    atomic: bool | None = None

    @classmethod
    def of(cls, project: Project, sampler: AnySampler | None = None, placement: Placement = "packed",
           volatile: bool = True, target: str = GUEST_TARGET, relinkable: bool = False) -> ProjectRecipe:  # fmt: skip
        """The recipe of a project in its present state. Raises `SourceError` if it cannot be read."""
        tree, environment = tree_digest(project.directory), environment_digest(project.command)
        return cls(project, tree, environment, sampler, placement, volatile, target, relinkable)

    @property
    def program_digest(self) -> str:
        """Hash of what the program is without its metrics: the project's files and what its build takes from outside,
        its environment, the build command, and the compiler."""
        outside = outside_digest(self._outside() or [])
        identity = (*self._source, self.project.binary, outside)
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @property
    def _source(self) -> tuple[str, ...]:
        """What all programs of the project are made from, but for files outside of it."""
        return (self.tree, self.environment, self.project.command, self.target, compiler_version())

    def _outside(self) -> list[str] | None:
        """The files outside of the project that its build takes; None if it was not built yet, or long ago.

        Only a build shows them. As long as they, the project, and the rest do not change, it takes the same.
        """
        kept = read_checked(self._outside_place)
        return None if kept is None else [os.fsdecode(path) for path in kept.splitlines()]

    @property
    def _outside_place(self) -> Path:
        return object_path(json.dumps(["outside", *self._source, generator_digest()]))

    def find(self, metrics: Mapping[str, MetricSpec], code_offset_bytes: int = 0) -> Build | None:
        """The program from the cache, or None if it was not built yet."""
        if metrics and self.atomic is None:
            plain = self._plain.find({})
            return plain and replace(self, atomic=plain.starts_threads).find(metrics, code_offset_bytes)
        if self._outside() is None:
            return None
        spec = self._spec(metrics, code_offset_bytes)
        place = self._cache_path(spec)
        build = load_build(place, spec.layout)
        # The compiler's own libraries are in its cache, which may have been emptied.
        is_whole = build is None or build.relinkable or not (place / COMMAND_NAME).exists()
        return build if is_whole else None

    def build(
        self,
        metrics: Mapping[str, MetricSpec],
        code_offset_bytes: int = 0,
        notify: Callable[[str], None] | None = None,
        about: str = "",
    ) -> Build:
        """Run the build command if necessary, and link with the code offset. ``about``: what is built, for messages.

        Raises `SourceError` when the command fails or does not make the program, `SpecError` for a metric without
        events in the whole program, and `ToolchainError`.
        """
        if metrics and self.atomic is None:
            plain = self._plain.build({}, 0, notify, about)
            return replace(self, atomic=plain.starts_threads).build(metrics, code_offset_bytes, notify, about)
        found = self.find(metrics, code_offset_bytes)
        if found is not None:
            return found
        notify = notify or (lambda message: None)
        Toolchain(self.target, notify).prepare()  # first, since otherwise several compilers would wait for it
        spec = self._spec(metrics, code_offset_bytes)
        as_is = self._as_is(metrics)
        made = self._make_tree(as_is, notify, about)
        if spec != as_is and made.link is None:
            made = self._make_tree(spec, notify, about)
        return self._keep(spec, made)

    def outputs(self, metrics: Mapping[str, MetricSpec], code_offset_bytes: int = 0) -> list[Path]:
        """The files to which `build` directs what the project's command prints. They exist while it runs, and after a
        failure."""
        if metrics and self.atomic is None:
            plain = self._plain.find({})
            if plain is None:
                return self._plain.outputs({})
            return replace(self, atomic=plain.starts_threads).outputs(metrics, code_offset_bytes)
        as_is, spec = self._as_is(metrics), self._spec(metrics, code_offset_bytes)
        return [self._tree(each).log for each in ([as_is] if spec == as_is else [as_is, spec])]

    def linked_programs(self, notify: Callable[[str], None]) -> list[str]:
        """The programs that the build links with the wrapper; the project needs no ``binary`` for this."""
        Toolchain(self.target, notify).prepare()
        build_cache.use_builds()
        return self._make_tree(self._spec({}, 0), notify).linked()

    def tree_of_plain_build(self) -> Path:
        """The copy of the project in which it is built without metrics."""
        return self._tree(self._spec({}, 0)).folder / "tree"

    def with_null_control(self) -> ProjectRecipe:
        """The same program with counters in code that never runs."""
        return replace(self, null_control=True)

    @property
    def _plain(self) -> ProjectRecipe:
        return replace(self, placement="packed", volatile=True, null_control=False, atomic=False)

    def _spec(self, metrics: Mapping[str, MetricSpec], code_offset_bytes: int) -> WrapperSpec:
        sampler: SamplerSpec | HostSamplerSpec | None = None
        if isinstance(self.sampler, HostSamplerConfig):
            sampler = HostSamplerSpec(host=True)
        elif self.sampler is not None:
            sampler = SamplerSpec(**vars(self.sampler))
        return WrapperSpec(
            metrics=dict(metrics), placement=self.placement, volatile=self.volatile, atomic=bool(self.atomic),
            sampler=sampler,
            target=self.target, code_offset_bytes=code_offset_bytes, null_control=self.null_control,
            sections=self.relinkable,
        )  # fmt: skip

    def _as_is(self, metrics: Mapping[str, MetricSpec]) -> WrapperSpec:
        """Of the build whose objects a program with a code offset or a null control is linked from, where possible."""
        return self._spec(metrics, 0).model_copy(update={"null_control": False})

    def _tree(self, spec: WrapperSpec) -> BuiltTree:
        """The place of the project built with ``spec``."""
        return BuiltTree(cache_directory() / build_cache.PROJECTS / self._key(spec, ""), self.project)

    def _key(self, spec: WrapperSpec, binary: str, outside: str = "") -> str:
        identity = {
            "source": self._source, "binary": binary, "outside": outside,
            "spec": spec.model_dump(mode="json"), "order": list(spec.metrics), "generator": generator_digest(),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def _cache_path(self, spec: WrapperSpec) -> Path:
        outside = outside_digest(self._outside() or [])
        return cache_directory() / build_cache.BUILDS / self._key(spec, self.project.binary, outside)

    def _make_tree(self, spec: WrapperSpec, notify: Callable[[str], None], about: str = "") -> BuiltTree:
        """The project built with ``spec``, by this process or, while it waits, by another one; for all its programs."""
        tree, outside = self._tree(spec), self._outside()
        with tree.locked():
            if tree.is_whole():
                tree.mark_used()  # so that it stays until `_keep` has linked
            else:
                what, n = f" for {about}" if about else "", len(spec.metrics)
                counting = f", counting {n} metric{'' if n == 1 else 's'}" if n else ""
                notify(f"Building the project{what} by its own command{counting}: {self.project.command}")
                tree.make(spec, notify, outside if spec.metrics else None)
                outside = None
            if outside is None:
                write_checked(self._outside_place, b"\n".join(map(os.fsencode, tree.outside)))
            tree.check_binary(spec.target)
            tree.check_inputs(spec.target)
        return tree

    def _keep(self, spec: WrapperSpec, tree: BuiltTree) -> Build:
        """Put the program of ``spec`` from the built ``tree`` into the cache of builds."""
        started = time.perf_counter()
        place = self._cache_path(spec)
        place.parent.mkdir(parents=True, exist_ok=True)
        with workspace(place.parent) as temporary:
            with tree.locked(shared=True):
                tree.write_program(temporary / "program", spec)
                sites, places, warnings, notices = tree.check_counts(spec, temporary / "program")
            # Also for a tree that was there: the program with other counters needs one of its own.
            seconds = tree.seconds + time.perf_counter() - started
            write_facts(temporary, sites, places, warnings, notices, seconds)
            keep_build(temporary, place, spec.layout)
        build = load_build(place, spec.layout)
        assert build is not None
        return build


def linked_programs(directory: Path, command: str, notify: Callable[[str], None]) -> list[str]:
    """The programs that a build command links with the wrapper, relative to ``directory``.

    The build is kept like that of a campaign, whose plain program needs no other one then. Raises `SourceError` when
    the command fails, and `ToolchainError`.
    """
    return _without_program(directory, command).linked_programs(notify)


def may_call_another_compiler(directory: Path, command: str) -> bool:
    """Whether a build that `linked_programs` made, and that links none, may call another compiler than the wrapper, by
    the files that it left. Raises `SourceError`."""
    return may_be_of_another_compiler(_without_program(directory, command).tree_of_plain_build())


def build_outputs(directory: Path, command: str) -> list[Path]:
    """The files to which `linked_programs` directs what the command prints. Raises `SourceError`."""
    return _without_program(directory, command).outputs({})


def _without_program(directory: Path, command: str) -> ProjectRecipe:
    return ProjectRecipe.of(Project(directory, command, ""), relinkable=True)
