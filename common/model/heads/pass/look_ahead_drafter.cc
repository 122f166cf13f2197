#include "common/model/heads/pass/look_ahead_drafter.h"

#include <algorithm>
#include <numeric>

#include "common/status.h"

namespace tandem {
namespace {

// The newest token's row is the target's own distribution of the next token, and a greedy target
// takes its likeliest token.
void KeepLikeliest(std::vector<Guess>& guesses) {
  if (guesses.empty()) return;
  guesses.erase(guesses.begin() + 1, guesses.end());
  guesses.front().chance = 1;
}

// Returns the tree of an order. `guesses` has the likeliest tokens of its rows, that of the newest
// token first, with their chances at temperature 1.
GuessTree TreeOf(const GuessOrder& order, std::span<std::vector<Guess>> guesses) {
  const bool is_greedy = order.temperature <= 0;
  for (std::vector<Guess>& of_row : guesses) Sharpen(of_row, order.temperature);
  if (order.transforms == nullptr) {
    if (is_greedy) KeepLikeliest(guesses.front());
    return GrowGuessTree(guesses, order.limits);
  }
  return GrowGuessTree(guesses, order.limits,
                       [&](std::span<const int32_t> path, std::vector<Guess>& after) {
                         order.transforms->Apply(path, SharpnessAt(order.temperature), after);
                         if (is_greedy && path.empty()) KeepLikeliest(after);
                       });
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
  int32_t count = kGuessesOfHead;
  for (const Begun& each : begun) count = std::max(count, GuessesOf(*each.order));
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::vector<tandem::Guess>> guesses,
                          device_->LookAhead(looks, count));
  progress_.fetch_add(1, std::memory_order_relaxed);
  std::span<std::vector<tandem::Guess>> left = guesses;
  for (const Begun& each : begun) {
    const std::span<std::vector<tandem::Guess>> of_order = left.first(each.num_rows);
    left = left.subspan(each.num_rows);
    for (std::vector<tandem::Guess>& of_row : of_order) KeepFirst(GuessesOf(*each.order), of_row);
    each.order->tree = TreeOf(*each.order, of_order);
  }
  return absl::OkStatus();
}

}  // namespace tandem
