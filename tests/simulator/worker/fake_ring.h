// The log-prob ring without the log-probs. A row names its prefix and its token.
#ifndef TANDEM_TESTS_SIMULATOR_WORKER_FAKE_RING_H_
#define TANDEM_TESTS_SIMULATOR_WORKER_FAKE_RING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tandem/v1/worker.pb.h"

namespace tandem::simulator {

struct FakeRow {
  uint64_t prefix = 0;
  int64_t token_id = 0;
};

struct FakeRingEntry {
  enum class State : uint8_t { kFree, kFilling, kReady };
  State state = State::kFree;
  uint64_t sequence = 0;
  std::vector<FakeRow> rows;
  uint64_t received_bytes = 0;  // for the inline transport only
};

struct FakeRing {
  uint64_t epoch = 0;
  v1::RingTransport transport = v1::RING_TRANSPORT_UNSPECIFIED;
  uint64_t nonce = 0;
  uint32_t rows_per_entry = 0;
  bool confirmed = false;
  std::vector<FakeRingEntry> entries;
};

// The rings that a host shares, by the path of their socket. A worker that has mapped a ring keeps
// its memory.
class FakeRings {
 public:
  uint64_t NextEpoch() { return ++last_epoch_; }
  void Offer(const std::shared_ptr<FakeRing>& ring) { offered_[Path(ring->epoch)] = ring; }
  void Withdraw(uint64_t epoch) { offered_.erase(Path(epoch)); }
  std::shared_ptr<FakeRing> Fetch(const std::string& path) const {
    const auto found = offered_.find(path);
    return found == offered_.end() ? nullptr : found->second;
  }
  static std::string Path(uint64_t epoch) { return absl::StrCat("ring-", epoch); }

 private:
  uint64_t last_epoch_ = 1000;
  std::map<std::string, std::shared_ptr<FakeRing>> offered_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_RING_H_
