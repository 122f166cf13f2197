// The drafter "pass": the target guesses several tokens in one pass, with rows that look ahead.
#ifndef TANDEM_COMMON_MODEL_HEADS_PASS_LOOK_AHEAD_DRAFTER_H_
#define TANDEM_COMMON_MODEL_HEADS_PASS_LOOK_AHEAD_DRAFTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/heads/step_device.h"

namespace tandem {

// The row of the newest token gives the target's own distribution of the next token. The
// look-ahead rows after it guess the tokens after that. All of them are one chain behind the text,
// and are given back after the pass (docs/adr/0034-look-ahead-rows-in-a-pass-of-their-own.md).
class LookAheadDrafter final : public SelfDrafter {
 public:
  // `device` takes rows through the whole target. It has `num_rows` look-ahead embeddings.
  LookAheadDrafter(std::unique_ptr<StepDevice> device, size_t num_rows)
      : device_(std::move(device)), num_rows_(static_cast<uint32_t>(num_rows)) {}

  const std::string& name() const override { return name_; }
  uint32_t max_depth() const override { return num_rows_ + 1; }
  uint64_t weight_bytes() const override { return device_->weight_bytes(); }
  void KeepFeature(size_t /*place*/, size_t /*logits_row*/) override {}  // it reads none
  absl::Status Propose(std::span<GuessOrder> orders) override;
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

 private:
  // An order whose rows are in the pass.
  struct Begun {
    GuessOrder* order;
    size_t num_rows;  // that of the newest token, and the look-ahead rows
  };

  // Adds the rows of the first orders to the pass, as many as there is room for, and takes these
  // orders out of `orders`. An order gets fewer look-ahead rows where its cache has little room,
  // and no rows where it has none.
  std::vector<Begun> Begin(std::span<GuessOrder>* orders);
  void AddRows(const GuessOrder& order, size_t num_rows);
  // Computes the pass, and puts the trees into the orders.
  absl::Status Guess(const std::vector<Begun>& begun);

  std::unique_ptr<StepDevice> device_;
  std::string name_ = "pass";
  uint32_t num_rows_;
  std::atomic<uint64_t> progress_ = 0;
  StepPass pass_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_PASS_LOOK_AHEAD_DRAFTER_H_
