#include "common/ring/ring_layout.h"

#include <string>

#include "common/status.h"

namespace tandem {
namespace {

constexpr uint32_t kMaxEntries = 1024;
constexpr uint32_t kMaxRowsPerEntry = 64;
constexpr uint32_t kMaxRingVocabulary = 1 << 20;
constexpr uint64_t kMaxRingBytes = uint64_t{16} << 30;

absl::Status CheckSize(const char* field, uint32_t value, uint32_t limit) {
  if (value >= 1 && value <= limit) return absl::OkStatus();
  return InvalidArgument("ring: " + std::string(field) + " is " + std::to_string(value) +
                         ", want 1 … " + std::to_string(limit));
}

}  // namespace

absl::Status RingGeometry::Check() const {
  TANDEM_RETURN_IF_ERROR(CheckSize("entries", entries, kMaxEntries));
  TANDEM_RETURN_IF_ERROR(CheckSize("rows_per_entry", rows_per_entry, kMaxRowsPerEntry));
  TANDEM_RETURN_IF_ERROR(CheckSize("vocabulary_size", vocabulary_size, kMaxRingVocabulary));
  if (total_bytes() > kMaxRingBytes) {
    return InvalidArgument("ring: " + std::to_string(total_bytes()) + " bytes, want at most " +
                           std::to_string(kMaxRingBytes) + " (fewer entries or a shorter draft)");
  }
  return absl::OkStatus();
}

size_t RingGeometry::rows_offset() const {
  const size_t entry_pages = (entries * sizeof(RingEntry) + kRingPageBytes - 1) / kRingPageBytes;
  return (1 + entry_pages) * kRingPageBytes;
}

}  // namespace tandem
