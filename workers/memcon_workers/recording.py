"""The model as one attempt calls it: keeps the ids that the provider reports, and whose failure a failure is.

Every attempt is played through it, so that no framework and no backbone has to care for the record (HX-3).
"""

from __future__ import annotations

from collections.abc import Sequence

from memcon.errors import Boundary, ProviderError, boundary
from memcon.protocols import ChatModel, Completion, Message

__all__ = ["RecordingModel"]


class RecordingModel:
    """A `memcon.protocols.ChatModel` for one attempt: passes every call on to the model of the process."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.model_id, self.token_source = model.model_id, model.token_source
        # Keys only: a set that keeps its order.
        self._reported: dict[str, None] = {}
        # Set once the provider has refused us, whatever the framework made of that.
        self.refusal: ProviderError | None = None

    @property
    def reported_ids(self) -> tuple[str, ...]:
        """Distinct ids that the provider has reported, in order of first use."""
        return tuple(self._reported)

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        """As the model's own.

        Raises:
            BoundaryError: the model failed, or does not answer now.
            ProviderError: the provider refuses us.
        """
        try:
            with boundary(Boundary.BACKBONE, "complete"):
                completion = await self._model.complete(messages, seed=seed)
        except ProviderError as error:
            self.refusal = error
            raise
        if completion.model_id:
            self._reported.setdefault(completion.model_id)
        return completion

    async def close(self) -> None:
        """Nothing to free: the model is the process's and outlives the attempt."""
