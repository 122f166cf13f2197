#include "services/router/engine/sessions/heads_swap.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/peer_text.h"

namespace tandem {

bool AreSameHeads(const v1::SelfDrafter& a, const v1::SelfDrafter& b) {
  return a.heads() == b.heads() && a.name() == b.name() && a.version() == b.version();
}

void HeadsSwap::Want(std::optional<std::string> heads, double now) {
  wanted_ = std::move(heads);
  if (++wish_ == 0) ++wish_;
  SendAt(now);
}

void HeadsSwap::OnAttached(double now) {
  has_session_ = true;
  SendAt(now);
}

void HeadsSwap::SendAt(double at) {
  problem_.clear();
  asked_as_ = 0;  // an answer to what was sent before says nothing about this wish
  send_at_ = wanted_.has_value() && has_session_ ? at : kNever;
}

void HeadsSwap::OnLost() {
  has_session_ = false;
  asked_as_ = 0;
  send_at_ = kNever;
}

v1::SetHeads HeadsSwap::Ask(uint64_t command_id) {
  asked_as_ = command_id;
  send_at_ = kNever;
  v1::SetHeads command;
  command.set_heads(*wanted_);
  command.set_wish(wish_);
  return command;
}

void HeadsSwap::OnAnswer(const v1::SetHeadsReply& reply, double now) {
  asked_as_ = 0;
  if (reply.loading()) send_at_ = now + kPauseSeconds;
  if (reply.superseded()) problem_ = "another router has asked the verifier for other heads";
}

void HeadsSwap::OnRefused(const std::string& why) {
  asked_as_ = 0;
  problem_ = why;
  const std::string summary =
      absl::StrCat("verifier: cannot take the heads \"", wanted_.value_or(""), "\"");
  out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                          .text = absl::StrCat(summary, ": ", why),
                          .summary = summary});
}

bool HeadsSwap::IsNews(const v1::SelfDrafter& drafter, const v1::SelfDrafter& known) {
  if (AreSameHeads(known, drafter)) return false;
  const std::string what = drafter.name().empty()
                               ? "no heads draft any more"
                               : absl::StrCat("the heads ", EscapeControls(drafter.heads()),
                                              " draft now (", EscapeControls(drafter.name()), ")");
  out_->push_back(LogLine{LogLine::Level::kInfo, "verifier: " + what});
  return true;
}

}  // namespace tandem
