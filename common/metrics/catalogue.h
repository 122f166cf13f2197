// Every metric of every process: name, unit, labels, help, and what to do about an unusual value.
// The tables in docs/metrics.md are made from this file.
//
// Other servers show the acceptance rate = accepted / drafted and the mean length = 1 + accepted /
// drafts. Alpha = accepted / tested does not depend on the draft length.
#ifndef TANDEM_COMMON_METRICS_CATALOGUE_H_
#define TANDEM_COMMON_METRICS_CATALOGUE_H_

#include <span>

#include "common/metrics/metric_info.h"

namespace tandem::metrics {

namespace buckets {
// 0.5 ms, doubling to 0.512 s.
inline constexpr auto kRound = ExponentialBuckets<11>(0.0005, 2);
inline constexpr auto kAccepted = LinearBuckets<17>(0, 1);
inline constexpr auto kRatio = std::array{0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
inline constexpr auto kFirstToken =
    std::array{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0};
inline constexpr auto kPerToken =
    std::array{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5};
inline constexpr auto kRingOpen =
    std::array{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0};
}  // namespace buckets

// ---------------------------------------------------------------- router: speculation

inline constexpr MetricInfo kDrafts{
    MetricType::kCounter,
    "tandem_drafts_total",
    "blocks",
    "drafter,draft_model",
    "Blocks of draft tokens that the verifier judged, counted for each request and round.",
    "If there are none while requests run, `tandem_fallback_rounds_total` has the reason."};
inline constexpr MetricInfo kDraftTokens{
    MetricType::kCounter,
    "tandem_draft_tokens_total",
    "tokens",
    "drafter,draft_model",
    "Draft tokens in the blocks that the verifier judged (drafted).",
    "For orientation: divided by `tandem_drafts_total`, it gives the mean length of a block. "
    "Compare the length with `--draft-length`."};
inline constexpr MetricInfo kAcceptedTokens{
    MetricType::kCounter,
    "tandem_accepted_tokens_total",
    "tokens",
    "drafter,draft_model",
    "Draft tokens that the verifier accepted and that were emitted.",
    "If it falls while `tandem_draft_tokens_total` does not, the requests have changed, or "
    "the model on one side. See `tandem_request_acceptance_ratio`."};
inline constexpr MetricInfo kTestedTokens{
    MetricType::kCounter,
    "tandem_tested_tokens_total",
    "tokens",
    "drafter,draft_model",
    "Draft tokens up to and including the first rejection of each block.",
    "Accepted divided by tested is α. If α falls, the drafter suits the requests less. If α "
    "stays while accepted divided by drafted falls, drafts only became longer."};
inline constexpr MetricInfo kAcceptedAtPosition{
    MetricType::kCounter,
    "tandem_accepted_tokens_per_position_total",
    "tokens",
    "drafter,draft_model,position",
    "Accepted draft tokens by position in their block, counted from 0.",
    "If the accepted share of the tested tokens falls steeply from position to position, use "
    "a shorter `--draft-length`, or auto. If the share is low at position 0 already, use "
    "another drafter."};
inline constexpr MetricInfo kTestedAtPosition{
    MetricType::kCounter,
    "tandem_tested_tokens_per_position_total",
    "tokens",
    "drafter,draft_model,position",
    "Tested draft tokens by position in their block, counted from 0.",
    "For orientation: compare the positions. Fewer than a hundred tests say nothing about the"
    " α of a position."};
inline constexpr MetricInfo kAcceptedPerDraft{
    MetricType::kHistogram,
    "tandem_accepted_tokens_per_draft",
    "tokens",
    "drafter,draft_model",
    "Number of accepted tokens in a block.",
    "If most blocks have 0, drafts are wasted. Compare drafters with `tandem bench`.",
    buckets::kAccepted};
inline constexpr MetricInfo kRequestAcceptance{
    MetricType::kHistogram,
    "tandem_request_acceptance_ratio",
    "ratio",
    "drafter,draft_model",
    "Accepted divided by drafted tokens of each request that ended and had drafts.",
    "If it has two humps, one kind of request does not suit the drafter. Serve it with "
    "`--draft-length auto` and not with a fixed length.",
    buckets::kRatio};
inline constexpr MetricInfo kEmittedTokens{
    MetricType::kCounter,
    "tandem_emitted_tokens_total",
    "tokens",
    "source",
    "Tokens that were sent to clients, by source: accepted drafts, recovered after a "
    "rejection, bonus after a block that was accepted as a whole, or plain.",
    "If there are none while `tandem_slots` has running slots, read the verifier's log. If "
    "all are plain, look at `tandem_fallback_rounds_total`."};
inline constexpr MetricInfo kFallbackRounds{
    MetricType::kCounter,
    "tandem_fallback_rounds_total",
    "rounds",
    "reason",
    "Rounds in which a request could have been drafted for and was not, by reason.",
    "The reason says what to do (see below). For no_drafter, given_up and draft_failed read "
    "the drafter's log. For no_ring and ring_error read the router's log. For no_pages give "
    "more KV cache. The other reasons need no action."};
inline constexpr MetricInfo kRollbacks{
    MetricType::kCounter,
    "tandem_rollbacks_total",
    "rollbacks",
    "worker",
    "Rollbacks of a slot: the drafter was told to drop rows of draft tokens that were not "
    "accepted, or the verifier rejected draft tokens.",
    "For orientation: compare with `tandem_drafts_total`. The drafter has fewer rollbacks than the "
    "verifier, because it never holds the row of a block's last token, and because a slot that "
    "ends "
    "is closed instead."};
inline constexpr MetricInfo kRolledBackRows{
    MetricType::kCounter,
    "tandem_rolled_back_rows_total",
    "rows",
    "worker",
    "Rows of draft tokens that the rollbacks dropped.",
    "If the verifier's value comes near `tandem_draft_tokens_total`, most drafts are computed in "
    "vain (a tree always has rows to drop). Compare drafters with `tandem bench`, or serve with "
    "`--draft-length auto`."};
inline constexpr MetricInfo kDraftLength{
    MetricType::kGauge,
    "tandem_draft_length",
    "tokens",
    "",
    "Mean draft length that was chosen for the requests of the last round.",
    "For orientation: with auto, a length that stays 0 means that drafts do not pay here. "
    "Compare with `tandem_speculation_gain_ratio`."};
inline constexpr MetricInfo kBaselineStep{
    MetricType::kGauge,
    "tandem_baseline_step_seconds",
    "seconds",
    "",
    "Expected time of a plain decoding round for the same requests, from measured costs.",
    "If it rises at the same load, the target computes slower than before. Look for other "
    "work on its cores."};
inline constexpr MetricInfo kSpeculationGain{
    MetricType::kGauge,
    "tandem_speculation_gain_ratio",
    "ratio",
    "",
    "Expected tokens per second of the last round, divided by those of plain decoding.",
    "If it stays under 1.05 on a server that is not busy, use a faster or better drafter "
    "(`tandem bench` compares drafters), or none."};
inline constexpr MetricInfo kDrafterTokens{
    MetricType::kCounter,
    "tandem_drafter_tokens_total",
    "tokens",
    "drafter,draft_model",
    "Tokens of the rounds that the drafter drafted, counted for each request: its accepted tokens "
    "and the one after them. Rounds without measured costs are left out.",
    "For orientation: divided by `tandem_drafter_plain_tokens_total`, it gives what the drafter "
    "gained."};
inline constexpr MetricInfo kDrafterPlainTokens{
    MetricType::kCounter,
    "tandem_drafter_plain_tokens_total",
    "tokens",
    "drafter,draft_model",
    "Tokens that plain decoding would have given in the time of these rounds and of the drafter's "
    "own work, from measured costs.",
    "If it grows as fast as `tandem_drafter_tokens_total` on a server that is not busy, the "
    "drafter "
    "gains nothing: leave it out of `--drafters`."};

// ---------------------------------------------------------------- router: requests and rounds

inline constexpr MetricInfo kRequests{
    MetricType::kCounter,
    "tandem_requests_total",
    "requests",
    "status",
    "Generate calls that ended, including refused calls, by gRPC status.",
    "RESOURCE_EXHAUSTED needs more workers or a longer `--max-queue`. For UNAVAILABLE and "
    "INTERNAL read the router's log. INVALID_ARGUMENT is a fault of the clients. Many "
    "CANCELLED mean that clients waited too long."};
inline constexpr MetricInfo kTimeToFirstToken{
    MetricType::kHistogram,
    "tandem_time_to_first_token_seconds",
    "seconds",
    "",
    "Time from the arrival of a request to its first token.",
    "If it rises, look at `tandem_queue_wait_seconds` first. If the wait is short, prompts "
    "have grown or miss the prefix cache.",
    buckets::kFirstToken};
inline constexpr MetricInfo kTimePerOutputToken{
    MetricType::kHistogram,
    "tandem_time_per_output_token_seconds",
    "seconds",
    "",
    "Time from the first to the last token of a finished request, divided by the number of "
    "tokens between them.",
    "If it rises with the number of running slots, use fewer `--max-slots` or more workers. "
    "Otherwise `tandem_round_stage_duration_seconds` shows the stage that has grown.",
    buckets::kPerToken};
inline constexpr MetricInfo kQueueWait{
    MetricType::kHistogram,
    "tandem_queue_wait_seconds",
    "seconds",
    "",
    "Time from the arrival of a request to its slot.",
    "If it rises while pages are free (`tandem_kv_pages`), use more `--max-slots`. Otherwise "
    "use more workers.",
    buckets::kFirstToken};
inline constexpr MetricInfo kRoundStage{
    MetricType::kHistogram,
    "tandem_round_stage_duration_seconds",
    "seconds",
    "stage",
    "Time of each stage of a round in which requests decode. Draft and verify are the "
    "computing time of the workers, transfer is the rest of the time that their batches took,"
    " and commit is the router's work between them.",
    "If transfer grows, the ring is inline in place of shm, or other work takes the cores. If"
    " draft is near verify, use a smaller drafter. If commit grows, the router lacks a core.",
    buckets::kRound};
inline constexpr MetricInfo kRound{
    MetricType::kHistogram,
    "tandem_round_duration_seconds",
    "seconds",
    "",
    "Time of a round in which requests decode, from the event that began the round to the "
    "verifier's answer.",
    "For orientation: compare with `tandem_baseline_step_seconds`, the time of a round "
    "without drafts.",
    buckets::kRound};
inline constexpr MetricInfo kSlots{
    MetricType::kGauge,
    "tandem_slots",
    "slots",
    "state",
    "Slots of this router: running or free.",
    "If none is free for long, new requests wait. See `tandem_queue_wait_seconds`."};
inline constexpr MetricInfo kRequestsWaiting{
    MetricType::kGauge,
    "tandem_requests_waiting",
    "requests",
    "",
    "Requests that wait for a slot or for KV pages.",
    "If it stays above 0 for minutes while slots are free, KV pages are short. Otherwise "
    "slots or workers are short. Use it to scale."};
inline constexpr MetricInfo kPreemptions{
    MetricType::kCounter,
    "tandem_preemptions_total",
    "requests",
    "",
    "Running requests that gave up their KV pages for other requests and must be computed "
    "again.",
    "If it grows steadily, work is done twice. Use more `--kv-cache-bytes` or fewer "
    "`--max-slots`."};
inline constexpr MetricInfo kPrefixHits{
    MetricType::kCounter,
    "tandem_prefix_cache_hit_tokens_total",
    "tokens",
    "worker",
    "Prompt tokens whose rows were found in a worker's prefix cache.",
    "If there are few although prompts begin with the same text, there are too few pages to "
    "keep the rows (`--kv-cache-bytes`), or the prompts belong to tenants that share nothing."};
inline constexpr MetricInfo kPrefixLookups{
    MetricType::kCounter,
    "tandem_prefix_cache_lookup_tokens_total",
    "tokens",
    "worker",
    "Prompt tokens that were sent to a worker, whether their rows were found or computed.",
    "For orientation: the difference from `tandem_prefix_cache_hit_tokens_total` is the "
    "number of computed rows."};

// ---------------------------------------------------------------- router: workers and audit

inline constexpr MetricInfo kDrafterAttached{
    MetricType::kGauge,
    "tandem_drafter_attached",
    "ratio",
    "",
    "Share of the draft models that are attached, each at one pod at least. Absent if no drafter "
    "is configured.",
    "If it is below 1, read the drafter's log and then the router's log, which says why the "
    "drafter was lost or refused. Requests go on without its drafts."};
inline constexpr MetricInfo kDraftModelShare{
    MetricType::kGauge,
    "tandem_draft_model_share",
    "ratio",
    "draft_model",
    "Share of the requests without a draft model of their own that this model may draft for: all"
    " for a model that serves, its share for a canary, 0 for one that stands by or was unloaded.",
    "Set it beside the speeds and the acceptance of the models to see what a swap changed."};
inline constexpr MetricInfo kVerifierAttached{
    MetricType::kGauge,
    "tandem_verifier_attached",
    "bool",
    "",
    "1 while the verifier serves.",
    "If it is 0, nothing is served. Read the logs of the supervisor and the verifier: memory,"
    " model files, a crash loop."};
inline constexpr MetricInfo kVerifierHeads{
    MetricType::kGauge,
    "tandem_verifier_heads",
    "pods",
    "heads,drafter",
    "Worker pods whose verifier has these heads: the name of their folder, and what they are."
    " Without heads, the name is empty, and the drafter is none.",
    "If pods have different heads for long, a swap failed somewhere: `tandem drafter list` says "
    "why."};
inline constexpr MetricInfo kWorkerPods{
    MetricType::kGauge,
    "tandem_worker_pods",
    "pods",
    "state",
    "Worker pods that this router knows: ready (the verifier serves) or lost.",
    "If a pod is lost for longer than a restart takes, the router's log names the pod and the"
    " reason."};
inline constexpr MetricInfo kRingTransport{
    MetricType::kGauge,
    "tandem_ring_transport_info",
    "info",
    "transport",
    "1 for the transport of the open log-prob ring, or for none.",
    "If it is inline or none although both workers are on one host, the router's log says why"
    " the better transport was refused."};
inline constexpr MetricInfo kRingOpen{
    MetricType::kHistogram,
    "tandem_ring_open_duration_seconds",
    "seconds",
    "transport",
    "Time from asking for a log-prob ring to its confirmation.",
    "If it is above 0.1 s, the host is short of memory or processor time. It is paid once for"
    " each attachment and not in rounds.",
    buckets::kRingOpen};
inline constexpr MetricInfo kRingRefusals{
    MetricType::kCounter,
    "tandem_ring_refusals_total",
    "rings",
    "transport,worker",
    "Transports of the log-prob ring that a worker refused, or that both workers offer and "
    "cannot share (counted for the drafter). After each refusal the next transport is tried, "
    "if there is one.",
    "If it grows, the router's log has the reason, such as no GPU memory, or another GPU, PID"
    " namespace or machine."};
inline constexpr MetricInfo kEpochChanges{
    MetricType::kCounter,
    "tandem_epoch_changes_total",
    "sessions",
    "worker,reason",
    "Sessions with a worker that began (reason attached) or ended (any other reason).",
    "More than three losses in 15 minutes are unusual. For disconnected read the worker's "
    "log. hung means a busy machine or a `--heartbeat-timeout` that is too short. "
    "incompatible means that the models do not fit."};
inline constexpr MetricInfo kAuditReplays{
    MetricType::kCounter,
    "tandem_audit_replays_total",
    "requests",
    "result",
    "Finished requests that were decoded again without drafts: same or mismatch.",
    "If there are none with `--audit-fraction`, the server is never idle, or all requests are"
    " plainly sampled. After a mismatch see `tandem_audit_failed`."};
inline constexpr MetricInfo kAuditSamples{
    MetricType::kCounter,
    "tandem_audit_samples_total",
    "tokens",
    "drafter",
    "Plainly sampled tokens that the audit examined, by the drafter of their round (none: a round"
    " without a draft).",
    "A bias of relative size δ takes about 36/δ² of a drafter's own samples to be found. A drafter"
    " with few samples is hardly examined: raise `--audit-fraction`."};
inline constexpr MetricInfo kAuditFailed{
    MetricType::kGauge,
    "tandem_audit_failed",
    "bool",
    "",
    "1 after the audit found a difference or a bias, until the router restarts.",
    "If it is 1, take the router out of service and keep its logs. docs/audit.md has the next"
    " steps."};

// ---------------------------------------------------------------- workers

inline constexpr MetricInfo kKvPages{
    MetricType::kGauge,
    "tandem_kv_pages",
    "pages",
    "worker,state",
    "Pages of a worker's KV cache: used by slots, cached (free, with a prefix), or free.",
    "If more than 95 % are used while requests wait, give more `--kv-cache-bytes`, a shorter "
    "`--max-context`, or another worker."};
inline constexpr MetricInfo kWorkerSlots{
    MetricType::kGauge,
    "tandem_worker_slots",
    "slots",
    "worker,state",
    "Slots of a worker, counted over all its routers: open or free.",
    "If none is free while routers have free slots, the routers together have more slots than"
    " this worker. Raise its `--max-slots`."};
inline constexpr MetricInfo kWorkerSessions{
    MetricType::kGauge,
    "tandem_worker_sessions",
    "sessions",
    "worker",
    "Sessions with a worker: one for each router, and at a draft worker one for each router and"
    " model.",
    "If there are fewer than routers, one of them cannot reach this worker or does not fit to"
    " it. The log of that router says which."};
inline constexpr MetricInfo kWorkerModels{
    MetricType::kGauge,
    "tandem_worker_models",
    "models",
    "worker",
    "Models that a worker has loaded: the one that it began with, and at a draft worker those that"
    " `tandem drafter load` named.",
    "It grows by one with each `tandem drafter load` and falls with `unload`. If it is larger than"
    " the number of draft models that the routers use, a session has not ended yet."};
inline constexpr MetricInfo kRingBytes{
    MetricType::kCounter,
    "tandem_ring_bytes_total",
    "bytes",
    "transport",
    "Bytes of log-probs that the drafter handed over, by the transport of the ring.",
    "For orientation: compare with four bytes × vocabulary × sampled draft tokens. With "
    "inline, these bytes pass through the router."};
inline constexpr MetricInfo kDraftGuesses{
    MetricType::kCounter,
    "tandem_draft_guesses_total",
    "tokens",
    "outcome",
    "Tokens that a draft worker guessed before its model drew them, by what came of it: right or "
    "wrong. A right one saves a pass of the draft model.",
    "For orientation: if most are wrong although there are many, report it. `--guess-drafts off` "
    "turns guesses off."};
inline constexpr MetricInfo kRingErrors{
    MetricType::kCounter,
    "tandem_ring_errors_total",
    "blocks",
    "transport,reason",
    "Blocks of log-probs that the verifier dropped unjudged. The reason bad_rows means that "
    "the rows are no distribution. Any other reason is the status of reading them.",
    "If bad_rows grow, the drafter computes nonsense: check its weights and its hardware. For"
    " other reasons restart the drafter, which opens a new ring. Drafts are lost, and the "
    "output stays right."};
inline constexpr MetricInfo kWorkerBatches{
    MetricType::kCounter,
    "tandem_worker_batches_total",
    "batches",
    "worker",
    "Propose or Verify batches that a worker answered.",
    "If there are none while requests run, the worker hangs or is cut off from its router. "
    "See `tandem_epoch_changes_total`."};
inline constexpr MetricInfo kWorkerCompute{
    MetricType::kCounter,
    "tandem_worker_compute_seconds_total",
    "seconds",
    "worker",
    "Time that a worker computed for its batches, without handing over log-probs.",
    "If it grows by nearly a second per second, this worker is the limit. Use more workers or"
    " a smaller model."};

// ---------------------------------------------------------------- gateway

inline constexpr MetricInfo kHttpRequests{
    MetricType::kCounter,
    "tandem_http_requests_total",
    "requests",
    "path,status",
    "Requests of HTTP that were answered, by path and status. 499: the client left before the end.",
    "Many 429 or 503: the router is full or gone. Many 499: clients give up, so look at "
    "`tandem_time_to_first_token_seconds`."};
inline constexpr MetricInfo kHttpRequestSeconds{
    MetricType::kHistogram,
    "tandem_http_request_seconds",
    "seconds",
    "path",
    "Time from the first byte of a request to the last byte of its answer.",
    "For orientation: compare it with the router's times. The gateway itself adds less than a "
    "millisecond.",
    buckets::kFirstToken};
inline constexpr MetricInfo kHttpConnections{
    MetricType::kGauge,
    "tandem_http_connections",
    "connections",
    "",
    "Open connections of HTTP clients.",
    "Near `--max-connections`, further clients are turned away: raise it, or start another "
    "gateway."};

// ---------------------------------------------------------------- all

inline constexpr MetricInfo kBuildInfo{
    MetricType::kGauge,
    "tandem_build_info",
    "info",
    "process,version",
    "Always 1. The labels say which process and version runs.",
    "If there are two versions for longer than an upgrade takes, finish the upgrade. A stream"
    " that moves between builds may take other tokens."};
inline constexpr MetricInfo kProcessCpu{
    MetricType::kCounter,
    "process_cpu_seconds_total",
    "seconds",
    "",
    "User and system time of the process.",
    "For orientation: compare its rate with the cores that the process may use. A router that"
    " needs a whole core is the limit."};
inline constexpr MetricInfo kProcessMemory{
    MetricType::kGauge,
    "process_resident_memory_bytes",
    "bytes",
    "",
    "Resident memory of the process.",
    "If it grows for hours at the same load after the KV pool has filled, memory leaks. "
    "Restart the process and report it."};
inline constexpr MetricInfo kProcessFds{
    MetricType::kGauge,
    "process_open_fds",
    "descriptors",
    "",
    "Descriptors that the process has open.",
    "If it is near the hard limit (`ulimit -Hn`), find the client that opens so many "
    "connections, or raise the limit (LimitNOFILE)."};
inline constexpr MetricInfo kProcessStart{
    MetricType::kGauge,
    "process_start_time_seconds",
    "seconds",
    "",
    "Start of the process in Unix time.",
    "If it changes without an upgrade, the process was restarted. The log before the restart "
    "has the reason."};

struct CatalogueSection {
  const char* title;
  const char* processes;  // processes that have these metrics
  std::span<const MetricInfo* const> metrics;
};

// Returns all sections.
std::span<const CatalogueSection> Catalogue();

}  // namespace tandem::metrics

#endif  // TANDEM_COMMON_METRICS_CATALOGUE_H_
