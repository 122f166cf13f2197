#include "services/router/engine/sessions/ring_negotiation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/ring_transport.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

bool Offers(const v1::AttachReply& info, v1::RingTransport transport) {
  return std::find(info.transports().begin(), info.transports().end(), transport) !=
         info.transports().end();
}

// Returns why the two workers cannot hand rows over by a transport that both offer. Empty: they can
// try.
std::string WhyNotShared(v1::RingTransport transport, const v1::AttachReply& draft,
                         const v1::AttachReply& target) {
  if (transport == v1::RING_TRANSPORT_INLINE) return {};
  if (draft.boot_id() != target.boot_id()) return "the workers are on two machines";
  if (transport != v1::RING_TRANSPORT_CUDA_IPC) return {};
  // CUDA's handles mean nothing for another GPU, or in another PID namespace.
  if (draft.device_uuid() != target.device_uuid()) {
    return absl::StrCat("the workers are on two GPUs, ", WorkerText(draft.device_uuid()), " and ",
                        WorkerText(target.device_uuid()));
  }
  if (draft.pid_namespace() != target.pid_namespace()) {
    return "the workers are in two PID namespaces";
  }
  return {};
}

}  // namespace

std::optional<v1::CreateRing> RingNegotiation::Start(const v1::AttachReply& draft,
                                                     const v1::AttachReply& target, double now) {
  started_at_ = now;
  std::vector<v1::RingTransport> transports;  // transports to try, the fastest first
  for (const auto& [choice, transport] :
       {std::pair(TransportChoice::kCudaIpc, v1::RING_TRANSPORT_CUDA_IPC),
        std::pair(TransportChoice::kShm, v1::RING_TRANSPORT_SHM),
        std::pair(TransportChoice::kInline, v1::RING_TRANSPORT_INLINE)}) {
    if (!Allows(choice) || !Offers(draft, transport) || !Offers(target, transport)) continue;
    const std::string why = WhyNotShared(transport, draft, target);
    if (why.empty()) {
      transports.push_back(transport);
      continue;
    }
    ++counts_->ring_refusals[Worker::kDrafter][transport];
    Warn(absl::StrCat("log-prob ring: ", RingTransportName(transport), " is not possible"), why);
  }
  return OrNone(credits_.Start({std::min(options_.max_slots, target.max_slots()),
                                options_.max_draft_length, target.vocabulary_size()},
                               std::move(transports)),
                "the workers have no transport in common");
}

void RingNegotiation::OnConfirmed(double now) {
  credits_.Confirmed();
  observer_->OnRingOpened(credits_.transport(), now - started_at_);
  out_->push_back(
      LogLine{LogLine::Level::kInfo,
              absl::StrCat("log-prob ring: ", RingTransportName(credits_.transport()))});
}

std::optional<v1::CreateRing> RingNegotiation::OnRefused(Worker worker,
                                                         const v1::WorkerError& error) {
  ++counts_->ring_refusals[worker][credits_.transport()];
  Warn(absl::StrCat("log-prob ring: ", RingTransportName(credits_.transport()), " refused"),
       absl::StrCat(WorkerName(worker), ": ", WorkerText(error.message())));
  return OrNone(credits_.Refused(), "no transport is left");
}

std::optional<v1::CreateRing> RingNegotiation::OrNone(std::optional<v1::CreateRing> create,
                                                      const char* why) {
  if (!create.has_value()) {
    out_->push_back(LogLine{LogLine::Level::kWarning,
                            absl::StrCat("log-prob ring: none (", why,
                                         "): only greedy and reproducible requests are drafted")});
  }
  return create;
}

void RingNegotiation::Warn(const std::string& summary, const std::string& detail) {
  out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                          .text = absl::StrCat(summary, ": ", detail),
                          .summary = summary});
}

}  // namespace tandem
