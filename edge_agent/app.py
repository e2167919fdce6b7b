"""Composition root: the only place that builds things and hands them in."""

from __future__ import annotations

import os
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_agent import clock, keyrings
from edge_agent.errors import (
    ConfigError,
    MismatchError,
    ModelNotFoundError,
)
from edge_agent.ownership import require_ours
from edge_agent.references import DEMO_NAME, is_name, is_path

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle, Progress
    from edge_agent.cache.key import Origin
    from edge_agent.config import AgentConfig
    from edge_agent.engine_choice import Measurement
    from edge_agent.images import ImageLimits
    from edge_agent.loading import ModelLoader, Notify
    from edge_agent.model_store import ModelStore
    from edge_agent.runtime import Answers, Runtime
    from edge_agent.types import ModelRef
    from edge_profiles.profile import DeviceProfile
    from edge_profiles.selection import Selection
    from edge_signing.keyring import Keyring
    from edge_signing.trust import Purpose


class Agent:
    """The agent of one process. Parts are built when they are first used.

    Args:
        config: The configuration.
        notify: Told, in a sentence, of what takes time or could not be kept.
    """

    def __init__(self, config: AgentConfig, notify: Notify) -> None:
        self.config = config
        self.notify = notify

    @cached_property
    def keyring(self) -> Keyring:
        """Who is trusted with what."""
        return keyrings.in_force(self.config.keyring_file)

    @cached_property
    def store(self) -> ModelStore:
        """The installed bundles."""
        from edge_agent.model_store import ModelStore

        return ModelStore(self.config.state_dir)

    @cached_property
    def limits(self) -> ImageLimits:
        """The largest images that are taken."""
        from edge_agent.images import ImageLimits

        return ImageLimits(
            max_bytes=self.config.max_image_mib * 1024 * 1024,
            max_pixels=self.config.max_image_megapixels * 1_000_000,
        )

    @cached_property
    def selection(self) -> Selection:
        """Which device profile is used, and why.

        Raises:
            ConfigError: There is none of the configured name, or a file can't be used.
        """
        from edge_profiles.errors import ProfileError
        from edge_profiles.selection import select

        try:
            return select(self.config.profile, self.config.profiles_dir, require_ours)
        except ProfileError as error:
            raise ConfigError(error.message, path=error.path, hint=error.hint) from error

    @cached_property
    def profile(self) -> DeviceProfile:
        """The device profile, fitted to this machine, with what is configured in its place.

        Raises:
            ConfigError: As for `selection`.
        """
        from edge_profiles.detect import cpu_threads, memory_limit_bytes

        config = self.config
        fitted = self.selection.profile.fitted(cpu_threads(), memory_limit_bytes())
        first = config.engine_order
        configured: dict[str, Any] = {
            "threads": config.threads or None,
            "min_available_mib": config.min_available_mib,
            "max_memory_mib": config.max_memory_mib,
            "max_latency_ms": config.max_latency_ms,
        }
        return fitted._replace(
            engines=(*first, *(one for one in fitted.engines if one not in first)),
            **{key: value for key, value in configured.items() if value is not None},
        )

    @cached_property
    def loader(self) -> ModelLoader:
        """What turns bundles into models that answer."""
        from edge_agent.backends.registry import BACKENDS
        from edge_agent.engine_choice import ChoiceMemory
        from edge_agent.loading import ModelLoader
        from edge_profiles.detect import detect

        return ModelLoader(
            backends=BACKENDS,
            memory=ChoiceMemory(self.config.state_dir / "engine_choices"),
            machine=cache(detect),
            limits=self.limits,
            threads=self.profile.threads,
            notify=self.notify,
            order=self.profile.engines,
        )

    def runtime(self, progress: Progress | None = None, *, cached: bool = False) -> Runtime:
        """Makes the runtime: it verifies and loads each model when it is first needed.

        Args:
            progress: Called with bytes done and bytes in all while a bundle is hashed.
            cached: Whether it may answer what was answered before, where the configuration says
                so too.
        """
        from edge_agent.runtime import Runtime

        return Runtime(
            lambda name: self.open(name, progress),
            lambda bundle: self.loader.load(bundle, self.config.engine),
            self._answers() if cached else None,
        )

    def _answers(self) -> Answers | None:
        """Returns the cache of the one-shot command; None where it is off, or can't be."""
        from edge_agent.serve_config import CacheConfig

        config = self.config.cache or CacheConfig()
        if config.mib == 0:
            return None
        try:
            from edge_agent.cache.oneshot import OneShotAnswers
        except ImportError:  # a Python without SQLite; doctor tells
            return None
        return OneShotAnswers(
            self.config.cache_file,
            config,
            lambda bundle: self.loader.foreseen(bundle, self.config.engine),
            self._origin,
        )

    def _origin(self, engine: str) -> Origin:
        from edge_agent.cache import origin

        stamp = self.loader.backends[engine].stamp()
        return origin.local(engine, str(stamp), self.loader.fingerprint())

    def open(self, reference: str, progress: Progress | None = None) -> Bundle:
        """Opens a bundle for loading, if it can be trusted.

        Args:
            reference: A path, ``NAME[@VERSION]`` of an installed bundle, or the demo's name.
            progress: Called with bytes done and bytes in all while hashing.

        Raises:
            ModelNotFoundError: There is none.
            MismatchError: The store holds another bundle than was installed under that name.
            edge_signing.errors.SigningError: It can't be trusted; the error says why.
        """
        from edge_signing.trust import Purpose

        path, installed = self._find(reference)
        bundle = self._open(path, Purpose.LOAD, progress)
        if not installed:
            self._tell_of_expired_keys(bundle)
        if installed and not self.store.is_expected(path, reference, bundle.ref):
            bundle.verified.close()
            raise MismatchError(
                f"holds {bundle.ref.name} {bundle.ref.version}, not what was installed as "
                f"{reference}",
                path=str(path),
                hint="install the model again",
            )
        return bundle

    def reopen(self, ref: ModelRef) -> Bundle:
        """Opens exactly the bytes that were opened before, if they can still be trusted.

        Raises:
            ModelNotFoundError: They aren't there any more.
            edge_signing.errors.SigningError: They can't be trusted; the error says why.
        """
        from edge_signing.trust import Purpose

        path = self.store.find_digest(ref.digest) or keyrings.DEMO_BUNDLE
        bundle = self._open(path, Purpose.LOAD, None)
        if bundle.ref.digest != ref.digest:
            bundle.verified.close()
            raise ModelNotFoundError(f"{ref.name} {ref.version} is not installed any more")
        return bundle

    def open_to_install(self, path: Path, progress: Progress | None = None) -> Bundle:
        """Opens a bundle for installing, if it can be trusted with that.

        Raises:
            edge_signing.errors.SigningError: It can't be trusted; the error says why.
        """
        from edge_signing.trust import Purpose

        return self._open(path, Purpose.INSTALL, progress)

    def locate(self, reference: str) -> Path:
        """Finds a bundle: what begins with ``.`` or ``/`` or ends in ``.tar`` is a path.

        Raises:
            ModelNotFoundError: There is none.
        """
        return self._find(reference)[0]

    def _tell_of_expired_keys(self, bundle: Bundle) -> None:
        for keyid in bundle.verified.verdict.signers:
            expires = self.keyring.keys[keyid].expires
            if expires and expires <= clock.now():
                self.notify(
                    f"the key {keyid[:16]} of {bundle.ref.name} expired on {expires.date()}: the "
                    "bundle runs from its path, but can't be installed"
                )

    def _find(self, reference: str) -> tuple[Path, bool]:
        """Returns where a bundle is, and whether the store says so."""
        if is_path(reference):
            return Path(reference), False
        if not is_name(reference):
            raise ConfigError(f"{reference!r} is not the name of a model")
        installed = self.store.find(reference)
        if installed is not None:
            return installed, True
        if reference == DEMO_NAME:
            return keyrings.DEMO_BUNDLE, False
        beside = f"; is ./{reference} meant?" if os.path.lexists(reference) else ""
        raise ModelNotFoundError(
            f"no model {reference!r} is installed{beside}",
            hint="edge-agent models list shows what is installed; a path begins with ./ or /",
        )

    def install(self, path: Path, progress: Progress | None = None) -> tuple[Bundle, bool]:
        """Verifies a bundle, copies it into the store, tries its golden input and activates it.

        Returns:
            The bundle, and False where the same bytes were installed already.

        Raises:
            edge_signing.errors.SigningError: It can't be trusted; the error says why.
            AgentError: No engine here loads it and answers the golden input rightly.
            StoreError: The store can't be written.
        """
        with self.open_to_install(path, progress) as bundle:
            when = clock.now().isoformat(timespec="seconds")
            return bundle, self.store.install(bundle, when, self._check_copy)

    def check(self, bundle: Bundle) -> list[Measurement]:
        """Loads the bundle on every engine that is installed here, and runs its golden input.

        Raises:
            AgentError: None of them loads it and answers rightly; the kind says which.
        """
        from edge_agent.engine_choice import fastest

        measured = self.loader.check(bundle)
        if measured:
            fastest(measured)
        return measured

    def _check_copy(self, folder: Path) -> None:
        from edge_signing.trust import Purpose

        with self._open(folder, Purpose.LOAD, None) as copy:
            for one in self.check(copy):
                if one.problem:
                    self.notify(f"{copy.ref.name} can't be used on {one.engine}: {one.problem}")

    def _open(self, path: Path, purpose: Purpose, progress: Progress | None) -> Bundle:
        from edge_agent.bundles import open_bundle

        return open_bundle(path, self.keyring, clock.now(), purpose, progress)
