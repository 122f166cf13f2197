#include "common/metrics/catalogue.h"

namespace tandem::metrics {
namespace {

constexpr const MetricInfo* kSpeculation[] = {
    &kDrafts,           &kDraftTokens,        &kAcceptedTokens,
    &kTestedTokens,     &kAcceptedAtPosition, &kTestedAtPosition,
    &kAcceptedPerDraft, &kRequestAcceptance,  &kEmittedTokens,
    &kFallbackRounds,   &kRollbacks,          &kRolledBackRows,
    &kDraftLength,      &kBaselineStep,       &kSpeculationGain,
    &kDrafterTokens,    &kDrafterPlainTokens};
constexpr const MetricInfo* kRounds[] = {
    &kRequests, &kTimeToFirstToken, &kTimePerOutputToken, &kQueueWait,  &kRoundStage,   &kRound,
    &kSlots,    &kRequestsWaiting,  &kPreemptions,        &kPrefixHits, &kPrefixLookups};
constexpr const MetricInfo* kSessions[] = {&kDrafterAttached, &kDraftModelShare, &kVerifierAttached,
                                           &kVerifierHeads,   &kWorkerPods,      &kRingTransport,
                                           &kRingOpen,        &kRingRefusals,    &kEpochChanges,
                                           &kAuditReplays,    &kAuditSamples,    &kAuditFailed};
constexpr const MetricInfo* kWorkers[] = {&kKvPages,      &kWorkerSlots,   &kWorkerSessions,
                                          &kWorkerModels, &kRingBytes,     &kDraftGuesses,
                                          &kRingErrors,   &kWorkerBatches, &kWorkerCompute};
constexpr const MetricInfo* kGateway[] = {&kHttpRequests, &kHttpRequestSeconds, &kHttpConnections};
constexpr const MetricInfo* kProcess[] = {&kBuildInfo, &kProcessCpu, &kProcessMemory, &kProcessFds,
                                          &kProcessStart};
constexpr CatalogueSection kSections[] = {
    {"Speculation", "router", kSpeculation},
    {"Requests and rounds", "router", kRounds},
    {"Workers and audit, as the router sees them", "router", kSessions},
    {"Workers", "verifier, drafter", kWorkers},
    {"HTTP", "gateway", kGateway},
    {"The process", "all", kProcess},
};

}  // namespace

std::span<const CatalogueSection> Catalogue() { return kSections; }

}  // namespace tandem::metrics
