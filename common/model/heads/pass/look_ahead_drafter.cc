#include "common/model/heads/pass/look_ahead_drafter.h"

#include <algorithm>
#include <numeric>

#include "common/status.h"

namespace tandem {
namespace {

// Turns what the newest token's row says into chances of the next token. It is the target's own
// distribution, and a greedy target takes its likeliest token.
void SharpenOwn(std::vector<Guess>& guesses, double temperature) {
  if (temperature > 0 || guesses.empty()) return Sharpen(guesses, temperature);
  guesses.erase(guesses.begin() + 1, guesses.end());
  guesses.front().chance = 1;
}

}  // namespace

absl::Status LookAheadDrafter::Propose(std::span<GuessOrder> orders) {
  TANDEM_RETURN_IF_ERROR(device_->Check());
  while (!orders.empty()) {
    const std::vector<Begun> begun = Begin(&orders);
    if (begun.empty()) continue;
    const absl::Status guessed = Guess(begun);
    for (const Begun& each : begun) {
      const TextRows& text = each.order->text;
      text.cache->TruncateTo(text.token_ids.size());
    }
    TANDEM_RETURN_IF_ERROR(guessed);
  }
  return absl::OkStatus();
}

std::vector<LookAheadDrafter::Begun> LookAheadDrafter::Begin(std::span<GuessOrder>* orders) {
  std::vector<Begun> begun;
  pass_ = {};
  for (; !orders->empty(); *orders = orders->subspan(1)) {
    GuessOrder& order = orders->front();
    // A row guesses one token.
    const uint32_t depth = std::min(order.limits.depth, max_depth());
    if (depth == 0) continue;
    KvCache& cache = *order.text.cache;
    const size_t room = cache.RoomFor(depth);
    if (pass_.rows.size() + room > StepDevice::kMaxRows) break;
    if (room == 0 || !cache.Reserve(room).ok()) continue;
    AddRows(order, room);
    begun.push_back({&order, room});
  }
  return begun;
}

void LookAheadDrafter::AddRows(const GuessOrder& order, size_t num_rows) {
  const size_t length = order.text.token_ids.size();
  for (size_t i = 0; i < num_rows; ++i) {
    pass_.rows.push_back({.token_id = order.next_token_id,
                          .position = length + i,
                          .guess = -1,
                          .kept_as = static_cast<int32_t>(pass_.rows.size()),
                          .look_ahead = static_cast<int32_t>(i) - 1});
  }
  pass_.sequences.push_back({.cache = order.text.cache,
                             .length = length,
                             .first_row = 0,
                             .rows = num_rows,
                             .parents = {}});
}

absl::Status LookAheadDrafter::Guess(const std::vector<Begun>& begun) {
  static_assert(StepDevice::kMaxRows <= StepDevice::kMaxGuesses, "each row keeps a guess");
  TANDEM_RETURN_IF_ERROR(device_->Run(pass_));
  progress_.fetch_add(1, std::memory_order_relaxed);
  std::vector<int32_t> looks(pass_.rows.size());
  std::iota(looks.begin(), looks.end(), 0);
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::vector<tandem::Guess>> guesses,
                          device_->LookAhead(looks));
  progress_.fetch_add(1, std::memory_order_relaxed);
  std::span<std::vector<tandem::Guess>> left = guesses;
  for (const Begun& each : begun) {
    const std::span<std::vector<tandem::Guess>> of_order = left.first(each.num_rows);
    left = left.subspan(each.num_rows);
    SharpenOwn(of_order.front(), each.order->temperature);
    for (std::vector<tandem::Guess>& ahead : of_order.subspan(1)) {
      Sharpen(ahead, each.order->temperature);
    }
    each.order->tree = GrowGuessTree(of_order, each.order->limits);
  }
  return absl::OkStatus();
}

}  // namespace tandem
