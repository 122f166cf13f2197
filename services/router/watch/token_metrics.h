// Metrics of tokens: where the emitted tokens came from, and how many drafted tokens were accepted.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_TOKEN_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_TOKEN_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/metrics/metric_registry.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/watch/live_history.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// The series of one drafter: its kind and the name of its model are in labels.
class DraftSeries {
 public:
  // `draft_model` is empty if the drafter is no model.
  DraftSeries(MetricRegistry* registry, Drafter drafter, const std::string& draft_model,
              uint32_t max_draft_length);

  // Counts a request's part of a round in which tokens were drafted for the request.
  void OnCommitted(const CommittedRound& round);
  void OnCompleted(double acceptance_rate) { request_acceptance_.Observe(acceptance_rate); }
  // Adds the counts to those of the sample.
  void AddTo(const std::pair<Drafter, std::string>& drafter, LiveSample* sample) const;

 private:
  DraftSeries(MetricRegistry* registry, const MetricLabels& labels, uint32_t max_draft_length);

  using Counter = prometheus::Counter;

  Counter& drafts_;
  Counter& draft_tokens_;
  Counter& accepted_tokens_;
  Counter& tested_tokens_;
  prometheus::Histogram& accepted_per_draft_;
  prometheus::Histogram& request_acceptance_;
  std::vector<Counter*> accepted_at_;  // by position
  std::vector<Counter*> tested_at_;    // by position
};

// What one drafter gained.
class GainSeries {
 public:
  GainSeries(MetricRegistry* registry, Drafter drafter, const std::string& draft_model);

  void AddRound(double tokens, double plain_tokens);
  void AddWork(double plain_tokens);
  const GainSums& sums() const { return sums_; }

 private:
  prometheus::Counter& tokens_;
  prometheus::Counter& plain_tokens_;
  GainSums sums_;
};

class TokenMetrics {
 public:
  // `registry` must outlive the metrics. Positions of draft tokens are counted up to
  // `max_draft_length`.
  TokenMetrics(MetricRegistry* registry, uint32_t max_draft_length);

  void OnCommitted(const CommittedRound& round);
  void OnDraftingWork(Drafter drafter, const std::string& draft_model, double plain_tokens);
  void OnCompleted(const v1::Completion& completion);
  // Makes the series of a draft model that fits.
  void AddDraftModel(const std::string& draft_model);
  // Sets the fields of the sample that are about tokens. Drafts are those of all drafters.
  void FillIn(LiveSample* sample) const;

 private:
  DraftSeries& Drafts(Drafter drafter, const std::string& draft_model);
  GainSeries& Gains(Drafter drafter, const std::string& draft_model);

  MetricRegistry* registry_;
  const uint32_t max_draft_length_;
  std::array<prometheus::Counter*, v1::TokenSource_ARRAYSIZE> emitted_ = {};
  std::map<std::pair<Drafter, std::string>, DraftSeries> drafts_;
  std::map<std::pair<Drafter, std::string>, GainSeries> gains_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_TOKEN_METRICS_H_
