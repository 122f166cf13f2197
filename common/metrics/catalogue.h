// Every metric of every process: names, units, labels, help. docs/metrics.md has the same as a
// table, made from this file.
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
    MetricType::kCounter, "tandem_drafts_total", "blocks", "draft_model",
    "Blocks of draft tokens that the verifier judged, of requests and rounds."};
inline constexpr MetricInfo kDraftTokens{MetricType::kCounter, "tandem_draft_tokens_total",
                                         "tokens", "draft_model",
                                         "Draft tokens in those blocks (drafted)."};
inline constexpr MetricInfo kAcceptedTokens{
    MetricType::kCounter, "tandem_accepted_tokens_total", "tokens", "draft_model",
    "Draft tokens that the verifier accepted, as far as they were emitted."};
inline constexpr MetricInfo kTestedTokens{
    MetricType::kCounter, "tandem_tested_tokens_total", "tokens", "draft_model",
    "Draft tokens up to and including the first rejection of each block."};
inline constexpr MetricInfo kAcceptedAtPosition{
    MetricType::kCounter, "tandem_accepted_tokens_per_position_total", "tokens",
    "draft_model,position", "Accepted draft tokens by place in their block, from 0."};
inline constexpr MetricInfo kTestedAtPosition{
    MetricType::kCounter, "tandem_tested_tokens_per_position_total", "tokens",
    "draft_model,position", "Tested draft tokens by place in their block, from 0."};
inline constexpr MetricInfo kAcceptedPerDraft{
    MetricType::kHistogram, "tandem_accepted_tokens_per_draft", "tokens",
    "draft_model",          "Accepted tokens of a block.",      buckets::kAccepted};
inline constexpr MetricInfo kRequestAcceptance{
    MetricType::kHistogram,
    "tandem_request_acceptance_ratio",
    "ratio",
    "draft_model",
    "Accepted / drafted tokens of a request that ended and had drafts.",
    buckets::kRatio};
inline constexpr MetricInfo kEmittedTokens{MetricType::kCounter, "tandem_emitted_tokens_total",
                                           "tokens", "source",
                                           "Tokens sent to clients: accepted drafts, recovered "
                                           "after a rejection, bonus after a block that "
                                           "was accepted whole, or plain."};
inline constexpr MetricInfo kFallbackRounds{
    MetricType::kCounter, "tandem_fallback_rounds_total", "rounds", "reason",
    "Rounds of a request that may be drafted for and was not, by reason."};
inline constexpr MetricInfo kDraftLength{
    MetricType::kGauge, "tandem_draft_length", "tokens", "",
    "Mean draft length that was chosen for the requests of the last round."};
inline constexpr MetricInfo kBaselineStep{
    MetricType::kGauge, "tandem_baseline_step_seconds", "seconds", "",
    "What a round of plain decoding of the same requests would take, from measured costs."};
inline constexpr MetricInfo kSpeculationGain{
    MetricType::kGauge, "tandem_speculation_gain_ratio", "ratio", "",
    "Expected tokens per second of the last round over those of plain decoding."};

// ---------------------------------------------------------------- router: requests and rounds

inline constexpr MetricInfo kRequests{
    MetricType::kCounter, "tandem_requests_total", "requests", "status",
    "Generate calls that ended, refused ones too, by gRPC status."};
inline constexpr MetricInfo kTimeToFirstToken{MetricType::kHistogram,
                                              "tandem_time_to_first_token_seconds",
                                              "seconds",
                                              "",
                                              "From the arrival of a request to its first token.",
                                              buckets::kFirstToken};
inline constexpr MetricInfo kTimePerOutputToken{
    MetricType::kHistogram,
    "tandem_time_per_output_token_seconds",
    "seconds",
    "",
    "First token to last of a finished request, over the tokens between.",
    buckets::kPerToken};
inline constexpr MetricInfo kQueueWait{MetricType::kHistogram,
                                       "tandem_queue_wait_seconds",
                                       "seconds",
                                       "",
                                       "From the arrival of a request to its slot.",
                                       buckets::kFirstToken};
inline constexpr MetricInfo kRoundStage{
    MetricType::kHistogram,
    "tandem_round_stage_duration_seconds",
    "seconds",
    "stage",
    "Stages of a round in which requests decode: draft and verify are the workers' computing, "
    "transfer is what "
    "their batches took beside, commit is the router's work between them.",
    buckets::kRound};
inline constexpr MetricInfo kRound{
    MetricType::kHistogram,
    "tandem_round_duration_seconds",
    "seconds",
    "",
    "Rounds in which requests decode, from the event that began them to the verifier's answer.",
    buckets::kRound};
inline constexpr MetricInfo kSlots{MetricType::kGauge, "tandem_slots", "slots", "state",
                                   "Slots of this router: running or free."};
inline constexpr MetricInfo kRequestsWaiting{MetricType::kGauge, "tandem_requests_waiting",
                                             "requests", "",
                                             "Requests that wait for a slot or for KV pages."};
inline constexpr MetricInfo kPreemptions{
    MetricType::kCounter, "tandem_preemptions_total", "requests", "",
    "Running requests that gave their KV pages up for others, to be computed again."};
inline constexpr MetricInfo kPrefixHits{
    MetricType::kCounter, "tandem_prefix_cache_hit_tokens_total", "tokens", "worker",
    "Prompt tokens whose rows were found in a worker's prefix cache."};
inline constexpr MetricInfo kPrefixLookups{
    MetricType::kCounter, "tandem_prefix_cache_lookup_tokens_total", "tokens", "worker",
    "Prompt tokens that were sent to a worker, found or computed."};

// ---------------------------------------------------------------- router: workers and audit

inline constexpr MetricInfo kDrafterAttached{MetricType::kGauge, "tandem_drafter_attached", "bool",
                                             "",
                                             "1 while the drafter serves; absent where there is "
                                             "none."};
inline constexpr MetricInfo kVerifierAttached{MetricType::kGauge, "tandem_verifier_attached",
                                              "bool", "", "1 while the verifier serves."};
inline constexpr MetricInfo kWorkerPods{
    MetricType::kGauge, "tandem_worker_pods", "pods", "state",
    "Worker pods that this router knows: ready (the verifier serves) or lost."};
inline constexpr MetricInfo kRingTransport{
    MetricType::kGauge, "tandem_ring_transport_info", "info", "transport",
    "1 for the transport of the log-prob ring that is open, or for none."};
inline constexpr MetricInfo kRingOpen{MetricType::kHistogram,
                                      "tandem_ring_open_duration_seconds",
                                      "seconds",
                                      "transport",
                                      "From asking for a ring to its confirmation.",
                                      buckets::kRingOpen};
inline constexpr MetricInfo kEpochChanges{
    MetricType::kCounter, "tandem_epoch_changes_total", "sessions", "worker,reason",
    "Sessions with a worker that began (attached) or ended (anything else)."};
inline constexpr MetricInfo kAuditReplays{
    MetricType::kCounter, "tandem_audit_replays_total", "requests", "result",
    "Finished requests that were decoded again without drafts: same, or mismatch."};
inline constexpr MetricInfo kAuditFailed{
    MetricType::kGauge, "tandem_audit_failed", "bool", "",
    "1 once the audit found a difference or a bias, until the router restarts."};

// ---------------------------------------------------------------- workers

inline constexpr MetricInfo kKvPages{
    MetricType::kGauge, "tandem_kv_pages", "pages", "worker,state",
    "Pages of a worker's KV cache: used by slots, cached (free, with a prefix), or free."};
inline constexpr MetricInfo kWorkerSlots{MetricType::kGauge, "tandem_worker_slots", "slots",
                                         "worker,state",
                                         "Slots of a worker, of all routers: open or free."};
inline constexpr MetricInfo kWorkerSessions{MetricType::kGauge, "tandem_worker_sessions",
                                            "sessions", "worker", "Routers attached to a worker."};
inline constexpr MetricInfo kRingBytes{
    MetricType::kCounter, "tandem_ring_bytes_total", "bytes", "transport",
    "Log-probs that the drafter handed over, by the ring's transport."};
inline constexpr MetricInfo kRingErrors{
    MetricType::kCounter, "tandem_ring_errors_total", "blocks", "transport,reason",
    "Blocks of log-probs that the verifier dropped unjudged: bad_rows are no distribution, any "
    "other reason is the status of reading them."};
inline constexpr MetricInfo kWorkerBatches{MetricType::kCounter, "tandem_worker_batches_total",
                                           "batches", "worker",
                                           "Propose or Verify batches that a worker answered."};
inline constexpr MetricInfo kWorkerCompute{
    MetricType::kCounter, "tandem_worker_compute_seconds_total", "seconds", "worker",
    "What those took, without the handing over of log-probs."};

// ---------------------------------------------------------------- all

inline constexpr MetricInfo kBuildInfo{MetricType::kGauge, "tandem_build_info", "info",
                                       "process,version", "1; says what runs."};
inline constexpr MetricInfo kProcessCpu{MetricType::kCounter, "process_cpu_seconds_total",
                                        "seconds", "", "User and system time of the process."};
inline constexpr MetricInfo kProcessMemory{MetricType::kGauge, "process_resident_memory_bytes",
                                           "bytes", "", "Memory that the process has resident."};
inline constexpr MetricInfo kProcessFds{MetricType::kGauge, "process_open_fds", "descriptors", "",
                                        "Descriptors that the process has open."};
inline constexpr MetricInfo kProcessStart{MetricType::kGauge, "process_start_time_seconds",
                                          "seconds", "", "When it started, in Unix time."};

struct CatalogueSection {
  const char* title;
  const char* processes;  // that have them
  std::span<const MetricInfo* const> metrics;
};

// All of the above.
std::span<const CatalogueSection> Catalogue();

}  // namespace tandem::metrics

#endif  // TANDEM_COMMON_METRICS_CATALOGUE_H_
