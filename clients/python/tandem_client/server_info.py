"""What a server says about itself. The fields are documented in proto/tandem/v1/generate.proto; the names are the same."""

from __future__ import annotations

import dataclasses

from .results import nested


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelInfo:
    """One of the server's draft models."""

    name: str
    attached: bool
    problem: str
    ring_transport: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditDrafterStats:
    """The samples of the audit for one drafter."""

    name: str
    num_samples: int
    uniformity_z: float
    draft_mode_z: float
    biased: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditStats:
    """The lossless audit (docs/audit.md)."""

    num_replayed: int
    num_mismatches: int
    num_samples: int
    uniformity_z: float
    draft_mode_z: float
    biased: bool
    drafters: tuple[AuditDrafterStats, ...] = nested(AuditDrafterStats)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """The present state, and counts since the start."""

    num_running: int
    num_queued: int
    num_kv_pages: int
    num_free_kv_pages: int
    num_draft_kv_pages: int
    num_free_draft_kv_pages: int
    kv_page_tokens: int
    num_finished: int
    num_preemptions: int
    num_verifier_losses: int
    num_drafter_losses: int
    num_ring_errors: int
    num_cached_prompt_tokens: int
    audit: AuditStats = nested(AuditStats)
    num_cached_draft_tokens: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What is served."""

    version: str
    model: str
    draft_model: str
    drafters: tuple[str, ...]
    max_context_tokens: int
    vocabulary_size: int
    max_slots: int
    max_draft_length: int
    drafter_attached: bool
    backend: str
    ring_transport: str
    load: ServerLoad = nested(ServerLoad)
    drafter_problem: str
    admin_address: str
    numerics_id: str
    max_tree_nodes: int
    draft_models: tuple[DraftModelInfo, ...] = nested(DraftModelInfo)
    chat_template: str
    chat_template_problem: str
    tool_call_format: str
