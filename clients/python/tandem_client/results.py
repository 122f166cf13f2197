"""What the server answers. Counts and seconds are documented in proto/tandem/v1/generate.proto; the names are the same."""

from __future__ import annotations

import builtins
import dataclasses
import enum
from typing import Any, TypeVar

from . import display, proto

_T = TypeVar("_T")


class Source(str, enum.Enum):
    """Where a token came from."""

    UNSPECIFIED = "unspecified"
    ACCEPTED = "accepted"
    """Drafted and kept."""
    RECOVERED = "recovered"
    """Sampled after a rejection."""
    BONUS = "bonus"
    """Sampled after a draft that was accepted as a whole."""
    PLAIN = "plain"
    """Decoded without a draft."""


class FinishReason(str, enum.Enum):
    """Why an output ended."""

    UNSPECIFIED = "unspecified"
    STOP = "stop"
    """A stop, or end of text."""
    LENGTH = "length"
    """`max_tokens`, or the room in the context."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopLogprob:
    """One of the tokens that were most likely at a place."""

    token_id: int
    logprob: float
    text: str | None
    bytes: builtins.bytes | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of an output."""

    id: int
    source: Source
    logprob: float | None = None
    """Natural logarithm of the target's probability before all transforms, if the request asked for logprobs."""
    top: tuple[TopLogprob, ...] = ()
    text: str | None = None
    """What the token adds in the middle of a text, if the request asked for it."""
    bytes: builtins.bytes | None = None
    """The same as bytes, which may be a part of a character."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PromptLogprob:
    """What the target expected at a token of the prompt, if the request asked for `prompt_logprobs`."""

    logprob: float
    top: tuple[TopLogprob, ...]
    text: str | None
    bytes: builtins.bytes | None


def nested(kind: type) -> Any:
    return dataclasses.field(metadata={"kind": kind})


def convert(kind: type[_T], message: Any) -> _T:
    """Makes a dataclass from a message whose fields have the same names."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # it is a dataclass
        value, inner = getattr(message, field.name), field.metadata.get("kind")
        if isinstance(value, (str, bytes, bool, int, float)):
            values[field.name] = value
        elif inner is not None and not hasattr(value, "__len__"):
            values[field.name] = convert(inner, value)
        else:
            values[field.name] = tuple(one if inner is None else convert(inner, one) for one in value)
    return kind(**values)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int
    cached_draft_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrafterStats:
    """What one drafter did for a request."""

    name: str
    model: str
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_tested_tokens: int
    num_round_tokens: int
    num_plain_tokens: float

    @property
    def gain(self) -> float | None:
        """Tokens of the drafter's rounds over those of plain decoding in the same time; None if nothing was measured."""
        return self.num_round_tokens / self.num_plain_tokens if self.num_plain_tokens else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationStats:
    """What drafting did for an output."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_position: tuple[int, ...]
    num_plain_rounds: int
    acceptance_rate: float
    """Accepted / drafted."""
    mean_acceptance_length: float
    drafter: str
    num_tested_tokens: int
    num_tested_tokens_per_position: tuple[int, ...]
    alpha: float
    """Accepted / tested, which does not depend on the draft length."""
    reproducible: bool
    drafters: tuple[DrafterStats, ...] = nested(DrafterStats)
    num_trees: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Where the time of an output went, in seconds."""

    queue_seconds: float
    prefill_seconds: float
    time_to_first_token_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    transfer_seconds: float
    router_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Output:
    """What has arrived of one choice."""

    index: int
    """Number of the choice, from 0."""
    request_id: str
    text: str
    tokens: tuple[Token, ...]
    prompt_logprobs: tuple[PromptLogprob, ...] = ()
    """One for each token of the prompt from the second one on; of choice 0 alone."""

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def sources(self) -> list[Source]:
        return [token.source for token in self.tokens]

    @property
    def logprobs(self) -> list[float | None]:
        return [token.logprob for token in self.tokens]

    def colored(self, color: bool | None = None) -> str:
        """Returns the text with ANSI colors by source (see `Options.token_texts`). By default there are colors if standard output is a
        terminal that wants them."""
        return display.colored(self, color)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(index={self.index}, text={self.text!r}, {len(self.tokens)} tokens)"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Choice(Output):
    """A whole output."""

    finish_reason: FinishReason
    stop: str | int | None
    """The stop string or the token id that ended the output."""
    usage: Usage
    speculation: SpeculationStats
    timings: Timings
    seed: int
    """The seed that was used."""
    lossless: bool
    """False only if lenience was below 1."""
    warnings: tuple[str, ...]
    """What is allowed and is probably not meant."""

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first one, over the seconds of decoding."""
        return (len(self.tokens) - 1) / self.timings.decode_seconds if self.timings.decode_seconds else None

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, finish_reason={self.finish_reason.value!r}, alpha={self.speculation.alpha:.2f})"

    def _repr_html_(self) -> str:
        return display.html_of_choices((self,))


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Completion(Choice):
    """The whole result of a request: its first choice, and all of them in `choices`."""

    choices: tuple[Choice, ...]

    def _repr_html_(self) -> str:
        return display.html_of_choices(self.choices)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message of a stream. Text and tokens need not match, because text waits while a character is incomplete or a stop string may
    have begun."""

    index: int
    """Number of the choice."""
    request_id: str
    text: str
    tokens: tuple[Token, ...]
    prompt_logprobs: tuple[PromptLogprob, ...]
    """All of a stream come in order, before the first token."""
    choice: Choice | None
    """The whole choice, in its last part."""

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def sources(self) -> list[Source]:
        return [token.source for token in self.tokens]


_SOURCES = {getattr(proto, f"TOKEN_SOURCE_{source.name}"): source for source in Source}
_FINISH_REASONS = {getattr(proto, f"FINISH_REASON_{reason.name}"): reason for reason in FinishReason}


def _top(entry: proto.TokenLogprobs, with_text: bool) -> tuple[TopLogprob, ...]:
    return tuple(TopLogprob(token_id=one.token_id, logprob=one.logprob, text=one.text if with_text else None,
                            bytes=one.bytes if with_text else None) for one in entry.top)


def _prompt_logprob(entry: proto.TokenLogprobs, with_text: bool) -> PromptLogprob:
    return PromptLogprob(logprob=entry.logprob, top=_top(entry, with_text), text=entry.text if with_text else None,
                         bytes=entry.bytes if with_text else None)


def _token(response: proto.GenerateResponse, number: int, with_text: bool) -> Token:
    source = _SOURCES.get(response.sources[number], Source.UNSPECIFIED)
    if number >= len(response.logprobs):
        return Token(id=response.token_ids[number], source=source)
    own = response.logprobs[number]
    return Token(id=response.token_ids[number], source=source, logprob=own.logprob, top=_top(own, with_text),
                 text=own.text if with_text else None, bytes=own.bytes if with_text else None)


class _Growing:
    """What has arrived of one choice, without a copy for each part."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[Token] = []
        self.prompt_logprobs: list[PromptLogprob] = []
        self.choice: Choice | None = None


class Assembly:
    """Puts the messages of a stream together."""

    def __init__(self, with_text: bool) -> None:
        self._with_text = with_text
        self._request_id = ""
        self._growing: dict[int, _Growing] = {}

    def add(self, response: proto.GenerateResponse) -> Part:
        self._request_id = response.request_id
        growing = self._growing.setdefault(response.index, _Growing())
        tokens = tuple(_token(response, number, self._with_text) for number in range(len(response.token_ids)))
        growing.texts.append(response.text)
        growing.tokens.extend(tokens)
        prompt_logprobs = tuple(_prompt_logprob(entry, self._with_text) for entry in response.prompt_logprobs)
        growing.prompt_logprobs.extend(prompt_logprobs)
        if response.HasField("completion"):
            growing.choice = self._choice(response.index, response.completion)
        return Part(index=response.index, request_id=response.request_id, text=response.text, tokens=tokens,
                    prompt_logprobs=prompt_logprobs, choice=growing.choice)

    @property
    def has_begun(self) -> bool:
        """Returns true if a token has come, or a log-probability of the prompt: another attempt would repeat it."""
        return any(growing.tokens or growing.prompt_logprobs for growing in self._growing.values())

    def outputs(self) -> tuple[Output, ...]:
        return tuple(growing.choice or Output(**self._common(index)) for index, growing in sorted(self._growing.items()))

    def completion(self) -> Completion | None:
        """Returns None if a choice has not ended."""
        choices = tuple(growing.choice for _, growing in sorted(self._growing.items()) if growing.choice is not None)
        if not choices or len(choices) < len(self._growing):
            return None
        first = {field.name: getattr(choices[0], field.name) for field in dataclasses.fields(choices[0])}
        return Completion(choices=choices, **first)

    def _common(self, index: int) -> dict[str, Any]:
        growing = self._growing[index]
        return {"index": index, "request_id": self._request_id, "text": "".join(growing.texts), "tokens": tuple(growing.tokens),
                "prompt_logprobs": tuple(growing.prompt_logprobs)}

    def _choice(self, index: int, end: proto.Completion) -> Choice:
        which = end.WhichOneof("stop_reason")
        return Choice(finish_reason=_FINISH_REASONS.get(end.finish_reason, FinishReason.UNSPECIFIED),
                      stop=None if which is None else getattr(end, which), usage=convert(Usage, end.usage),
                      speculation=convert(SpeculationStats, end.speculation), timings=convert(Timings, end.timings), seed=end.seed,
                      lossless=end.lossless, warnings=tuple(end.warnings), **self._common(index))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat:
    """What the model's chat template makes of a conversation."""

    prompt: str
    token_ids: list[int]
