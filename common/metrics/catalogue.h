// Every metric of every process: names, units, labels, help, and what to do when one is unusual.
// docs/metrics.md has the same as a table, made from this file.
//
// Acceptance rate = accepted / drafted and mean length = 1 + accepted / drafts are what other
// servers show; alpha = accepted / tested does not move with the draft length.
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
    "draft_model",
    "Blocks of draft tokens that the verifier judged, of requests and rounds.",
    "None while requests run: `tandem_fallback_rounds_total` has the reason."};
inline constexpr MetricInfo kDraftTokens{MetricType::kCounter,
                                         "tandem_draft_tokens_total",
                                         "tokens",
                                         "draft_model",
                                         "Draft tokens in those blocks (drafted).",
                                         "For orientation: over `tandem_drafts_total` it is the "
                                         "mean length of a block; compare with `--draft-length`."};
inline constexpr MetricInfo kAcceptedTokens{
    MetricType::kCounter,
    "tandem_accepted_tokens_total",
    "tokens",
    "draft_model",
    "Draft tokens that the verifier accepted, as far as they were emitted.",
    "Falls while `tandem_draft_tokens_total` does not: other requests than before, or another "
    "model on one side; see `tandem_request_acceptance_ratio`."};
inline constexpr MetricInfo kTestedTokens{
    MetricType::kCounter,
    "tandem_tested_tokens_total",
    "tokens",
    "draft_model",
    "Draft tokens up to and including the first rejection of each block.",
    "Accepted over tested is α. It falls: the drafter suits the requests less. It stays while "
    "accepted over drafted falls: drafts only grew longer."};
inline constexpr MetricInfo kAcceptedAtPosition{
    MetricType::kCounter,
    "tandem_accepted_tokens_per_position_total",
    "tokens",
    "draft_model,position",
    "Accepted draft tokens by place in their block, from 0.",
    "Its share of the tested falls steeply from position to position: a shorter `--draft-length`, "
    "or auto. Low at 0 already: another drafter."};
inline constexpr MetricInfo kTestedAtPosition{
    MetricType::kCounter,
    "tandem_tested_tokens_per_position_total",
    "tokens",
    "draft_model,position",
    "Tested draft tokens by place in their block, from 0.",
    "For orientation: compare the positions; under a hundred tests say nothing about the α of "
    "one."};
inline constexpr MetricInfo kAcceptedPerDraft{
    MetricType::kHistogram,
    "tandem_accepted_tokens_per_draft",
    "tokens",
    "draft_model",
    "Accepted tokens of a block.",
    "Mostly 0: drafts are wasted; compare drafters with `tandem bench`.",
    buckets::kAccepted};
inline constexpr MetricInfo kRequestAcceptance{
    MetricType::kHistogram,
    "tandem_request_acceptance_ratio",
    "ratio",
    "draft_model",
    "Accepted / drafted tokens of a request that ended and had drafts.",
    "Two humps: one kind of request does not suit the drafter; serve it with `--draft-length "
    "auto`, not with a fixed length.",
    buckets::kRatio};
inline constexpr MetricInfo kEmittedTokens{MetricType::kCounter,
                                           "tandem_emitted_tokens_total",
                                           "tokens",
                                           "source",
                                           "Tokens sent to clients: accepted drafts, recovered "
                                           "after a rejection, bonus after a block that "
                                           "was accepted whole, or plain.",
                                           "None while `tandem_slots` says running: the verifier's "
                                           "log. All plain: `tandem_fallback_rounds_total`."};
inline constexpr MetricInfo kFallbackRounds{
    MetricType::kCounter,
    "tandem_fallback_rounds_total",
    "rounds",
    "reason",
    "Rounds of a request that may be drafted for and was not, by reason.",
    "By reason, see below. no_drafter, given_up, draft_failed: the drafter's log; no_ring, "
    "ring_error: the router's; no_pages: more KV cache; the others need nothing."};
inline constexpr MetricInfo kDraftLength{
    MetricType::kGauge,
    "tandem_draft_length",
    "tokens",
    "",
    "Mean draft length that was chosen for the requests of the last round.",
    "For orientation: 0 for long with auto says that drafts do not pay here; compare with "
    "`tandem_speculation_gain_ratio`."};
inline constexpr MetricInfo kBaselineStep{
    MetricType::kGauge,
    "tandem_baseline_step_seconds",
    "seconds",
    "",
    "What a round of plain decoding of the same requests would take, from measured costs.",
    "Rises at the same load: the target computes slower than it did; look for other work on its "
    "cores."};
inline constexpr MetricInfo kSpeculationGain{
    MetricType::kGauge,
    "tandem_speculation_gain_ratio",
    "ratio",
    "",
    "Expected tokens per second of the last round over those of plain decoding.",
    "Under 1.05 for long on a server that is not busy: a faster or better drafter (`tandem bench` "
    "compares), or none."};

// ---------------------------------------------------------------- router: requests and rounds

inline constexpr MetricInfo kRequests{
    MetricType::kCounter,
    "tandem_requests_total",
    "requests",
    "status",
    "Generate calls that ended, refused ones too, by gRPC status.",
    "RESOURCE_EXHAUSTED: more workers, or a longer `--max-queue`; UNAVAILABLE, INTERNAL: the "
    "router's log; INVALID_ARGUMENT: the clients; many CANCELLED: clients that waited too long."};
inline constexpr MetricInfo kTimeToFirstToken{MetricType::kHistogram,
                                              "tandem_time_to_first_token_seconds",
                                              "seconds",
                                              "",
                                              "From the arrival of a request to its first token.",
                                              "Rises: `tandem_queue_wait_seconds` first; where "
                                              "that is low, prompts grew or miss the prefix cache.",
                                              buckets::kFirstToken};
inline constexpr MetricInfo kTimePerOutputToken{
    MetricType::kHistogram,
    "tandem_time_per_output_token_seconds",
    "seconds",
    "",
    "First token to last of a finished request, over the tokens between.",
    "Rises with the running slots: fewer `--max-slots`, or more workers. Without: "
    "`tandem_round_stage_duration_seconds` says where.",
    buckets::kPerToken};
inline constexpr MetricInfo kQueueWait{
    MetricType::kHistogram,
    "tandem_queue_wait_seconds",
    "seconds",
    "",
    "From the arrival of a request to its slot.",
    "Rises: more `--max-slots` while pages are free (`tandem_kv_pages`), else more workers.",
    buckets::kFirstToken};
inline constexpr MetricInfo kRoundStage{
    MetricType::kHistogram,
    "tandem_round_stage_duration_seconds",
    "seconds",
    "stage",
    "Stages of a round in which requests decode: draft and verify are the workers' computing, "
    "transfer is what "
    "their batches took beside, commit is the router's work between them.",
    "transfer grows: inline in place of shm, or cores that are busy elsewhere; draft near verify: "
    "a smaller drafter; commit grows: the router lacks a core.",
    buckets::kRound};
inline constexpr MetricInfo kRound{
    MetricType::kHistogram,
    "tandem_round_duration_seconds",
    "seconds",
    "",
    "Rounds in which requests decode, from the event that began them to the verifier's answer.",
    "For orientation: compare with `tandem_baseline_step_seconds`, what a round would take without "
    "drafts.",
    buckets::kRound};
inline constexpr MetricInfo kSlots{
    MetricType::kGauge,
    "tandem_slots",
    "slots",
    "state",
    "Slots of this router: running or free.",
    "None free for long: what comes then waits, see `tandem_queue_wait_seconds`."};
inline constexpr MetricInfo kRequestsWaiting{MetricType::kGauge,
                                             "tandem_requests_waiting",
                                             "requests",
                                             "",
                                             "Requests that wait for a slot or for KV pages.",
                                             "Above 0 for minutes: where slots are free, KV pages "
                                             "are short; else slots or workers are. Scale by it."};
inline constexpr MetricInfo kPreemptions{
    MetricType::kCounter,
    "tandem_preemptions_total",
    "requests",
    "",
    "Running requests that gave their KV pages up for others, to be computed again.",
    "Grows steadily: work is done twice; more `--kv-cache-bytes`, or fewer `--max-slots`."};
inline constexpr MetricInfo kPrefixHits{
    MetricType::kCounter,
    "tandem_prefix_cache_hit_tokens_total",
    "tokens",
    "worker",
    "Prompt tokens whose rows were found in a worker's prefix cache.",
    "Few, though prompts begin alike: too few pages to keep them (`--kv-cache-bytes`), or tenants "
    "that share nothing."};
inline constexpr MetricInfo kPrefixLookups{
    MetricType::kCounter,
    "tandem_prefix_cache_lookup_tokens_total",
    "tokens",
    "worker",
    "Prompt tokens that were sent to a worker, found or computed.",
    "For orientation: compare with `tandem_prefix_cache_hit_tokens_total`; the difference is what "
    "was computed."};

// ---------------------------------------------------------------- router: workers and audit

inline constexpr MetricInfo kDrafterAttached{MetricType::kGauge,
                                             "tandem_drafter_attached",
                                             "bool",
                                             "",
                                             "1 while the drafter serves; absent where there is "
                                             "none.",
                                             "0: the drafter's log, then the router's, which says "
                                             "why it was lost or refused; requests go on plainly."};
inline constexpr MetricInfo kVerifierAttached{MetricType::kGauge,
                                              "tandem_verifier_attached",
                                              "bool",
                                              "",
                                              "1 while the verifier serves.",
                                              "0: nothing is served; the supervisor's and the "
                                              "verifier's log: memory, model files, a crash loop."};
inline constexpr MetricInfo kWorkerPods{
    MetricType::kGauge,
    "tandem_worker_pods",
    "pods",
    "state",
    "Worker pods that this router knows: ready (the verifier serves) or lost.",
    "Lost for longer than a restart takes: the router's log names the pod and the reason."};
inline constexpr MetricInfo kRingTransport{
    MetricType::kGauge,
    "tandem_ring_transport_info",
    "info",
    "transport",
    "1 for the transport of the log-prob ring that is open, or for none.",
    "inline or none, and both workers are on one host: the router's log says why the better one "
    "was refused."};
inline constexpr MetricInfo kRingOpen{MetricType::kHistogram,
                                      "tandem_ring_open_duration_seconds",
                                      "seconds",
                                      "transport",
                                      "From asking for a ring to its confirmation.",
                                      "Above 0.1 s: the host is short of memory or processor time; "
                                      "paid once an attachment, not in rounds.",
                                      buckets::kRingOpen};
inline constexpr MetricInfo kRingRefusals{
    MetricType::kCounter,
    "tandem_ring_refusals_total",
    "rings",
    "transport,worker",
    "Times that a worker refused a transport of the log-prob ring, or that both offer one and "
    "cannot share it (counted as the drafter's), so that the next, if any, was tried.",
    "Grows: the router's log has the reason, such as no GPU memory, or another GPU, PID namespace "
    "or machine."};
inline constexpr MetricInfo kEpochChanges{
    MetricType::kCounter,
    "tandem_epoch_changes_total",
    "sessions",
    "worker,reason",
    "Sessions with a worker that began (attached) or ended (anything else).",
    "More than three losses in 15 minutes. disconnected: the worker's log; hung: a busy machine, "
    "or too short a `--heartbeat-timeout`; incompatible: the models."};
inline constexpr MetricInfo kAuditReplays{
    MetricType::kCounter,
    "tandem_audit_replays_total",
    "requests",
    "result",
    "Finished requests that were decoded again without drafts: same, or mismatch.",
    "None with `--audit-fraction`: the server is never idle, or all requests are sampled plainly. "
    "mismatch: see `tandem_audit_failed`."};
inline constexpr MetricInfo kAuditFailed{
    MetricType::kGauge,
    "tandem_audit_failed",
    "bool",
    "",
    "1 once the audit found a difference or a bias, until the router restarts.",
    "1: take the router out of service and keep its logs; docs/audit.md goes on from there."};

// ---------------------------------------------------------------- workers

inline constexpr MetricInfo kKvPages{
    MetricType::kGauge,
    "tandem_kv_pages",
    "pages",
    "worker,state",
    "Pages of a worker's KV cache: used by slots, cached (free, with a prefix), or free.",
    "used above 95 % while requests wait: more `--kv-cache-bytes`, a shorter `--max-context`, or "
    "another worker."};
inline constexpr MetricInfo kWorkerSlots{MetricType::kGauge,
                                         "tandem_worker_slots",
                                         "slots",
                                         "worker,state",
                                         "Slots of a worker, of all routers: open or free.",
                                         "None free while routers have some: together they have "
                                         "more slots than this worker; raise its `--max-slots`."};
inline constexpr MetricInfo kWorkerSessions{MetricType::kGauge,
                                            "tandem_worker_sessions",
                                            "sessions",
                                            "worker",
                                            "Routers attached to a worker.",
                                            "Fewer than routers: one cannot reach this worker, or "
                                            "does not fit; that router's log says which."};
inline constexpr MetricInfo kRingBytes{
    MetricType::kCounter,
    "tandem_ring_bytes_total",
    "bytes",
    "transport",
    "Log-probs that the drafter handed over, by the ring's transport.",
    "For orientation: compare with four bytes × vocabulary × sampled draft tokens; what goes "
    "inline passes through the router."};
inline constexpr MetricInfo kRingErrors{
    MetricType::kCounter,
    "tandem_ring_errors_total",
    "blocks",
    "transport,reason",
    "Blocks of log-probs that the verifier dropped unjudged: bad_rows are no distribution, any "
    "other reason is the status of reading them.",
    "Grows. bad_rows: a drafter that computes nonsense, so check its weights and hardware; other "
    "reasons: restart it, for a new ring. Drafts are lost, output stays right."};
inline constexpr MetricInfo kWorkerBatches{MetricType::kCounter,
                                           "tandem_worker_batches_total",
                                           "batches",
                                           "worker",
                                           "Propose or Verify batches that a worker answered.",
                                           "None while requests run: it hangs, or is cut off from "
                                           "its router; see `tandem_epoch_changes_total`."};
inline constexpr MetricInfo kWorkerCompute{
    MetricType::kCounter,
    "tandem_worker_compute_seconds_total",
    "seconds",
    "worker",
    "What those took, without the handing over of log-probs.",
    "Grows by nearly a second a second: this worker is the limit; more workers, or a smaller "
    "model."};

// ---------------------------------------------------------------- all

inline constexpr MetricInfo kBuildInfo{MetricType::kGauge,
                                       "tandem_build_info",
                                       "info",
                                       "process,version",
                                       "1; says what runs.",
                                       "Two versions for longer than an upgrade takes: finish it; "
                                       "a stream that moves between builds may take other tokens."};
inline constexpr MetricInfo kProcessCpu{
    MetricType::kCounter,
    "process_cpu_seconds_total",
    "seconds",
    "",
    "User and system time of the process.",
    "For orientation: compare its rate with the cores that the process may use; a router that "
    "needs a whole one is the limit."};
inline constexpr MetricInfo kProcessMemory{MetricType::kGauge,
                                           "process_resident_memory_bytes",
                                           "bytes",
                                           "",
                                           "Memory that the process has resident.",
                                           "Grows for hours at the same load, and the KV pool has "
                                           "filled: a leak; restart the process and report it."};
inline constexpr MetricInfo kProcessFds{MetricType::kGauge,
                                        "process_open_fds",
                                        "descriptors",
                                        "",
                                        "Descriptors that the process has open.",
                                        "Near the hard limit (`ulimit -Hn`): find the client that "
                                        "opens so many connections, or raise it (LimitNOFILE)."};
inline constexpr MetricInfo kProcessStart{
    MetricType::kGauge,
    "process_start_time_seconds",
    "seconds",
    "",
    "When it started, in Unix time.",
    "Changes without an upgrade: it was restarted; the log before that has its last words."};

struct CatalogueSection {
  const char* title;
  const char* processes;  // that have them
  std::span<const MetricInfo* const> metrics;
};

// All of the above.
std::span<const CatalogueSection> Catalogue();

}  // namespace tandem::metrics

#endif  // TANDEM_COMMON_METRICS_CATALOGUE_H_
