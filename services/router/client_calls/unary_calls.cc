#include "services/router/client_calls/unary_calls.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/ring_transport.h"
#include "common/status.h"

namespace tandem {
namespace {

// Largest total size of the replies that clients have not read yet.
constexpr size_t kMaxUnreadReplyBytes = size_t{64} << 20;
// Largest number of ids that are turned into text on the polling thread.
constexpr int kMaxShortIds = 16 << 10;
// Largest number of bytes that a message needs in addition to its text.
constexpr size_t kTextFieldBytes = 8;

}  // namespace

UnaryCalls::UnaryCalls(const CallContext& context, const Tokenizer* tokenizer, std::string version,
                       size_t max_message_bytes)
    : context_(context),
      tokenizer_(tokenizer),
      version_(std::move(version)),
      max_message_bytes_(max_message_bytes),
      unread_replies_(kMaxUnreadReplyBytes),
      tokenize_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.service->RequestTokenize(call, request, writer, context_.queue, context_.queue,
                                              tag);
          },
          GateOf(context_, kTokenizeMethod),
          [this](const auto& request, const auto& respond) { Tokenize(request, respond); }),
      detokenize_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.service->RequestDetokenize(call, request, writer, context_.queue,
                                                context_.queue, tag);
          },
          GateOf(context_, kDetokenizeMethod),
          [this](const auto& request, const auto& respond) { Detokenize(request, respond); }),
      server_info_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.service->RequestGetServerInfo(call, request, writer, context_.queue,
                                                   context_.queue, tag);
          },
          GateOf(context_, kGetServerInfoMethod),
          [this](const auto& /*request*/, const auto& respond) { respond(Info()); }),
      draft_models_(context_) {}

void UnaryCalls::Serve() {
  tokenize_.Serve();
  detokenize_.Serve();
  server_info_.Serve();
  draft_models_.Serve();
}

template <typename Reply>
void UnaryCalls::Respond(bool is_long, std::function<absl::StatusOr<Reply>()> compute,
                         std::function<void(const absl::StatusOr<Reply>&)> respond) {
  if (!is_long) return respond(compute());
  auto reply = std::make_shared<absl::StatusOr<Reply>>();
  const bool taken =
      context_.background->Run([reply, compute = std::move(compute)] { *reply = compute(); },
                               [reply, respond] { respond(*reply); });
  if (!taken) respond(TooMuchWork());
}

void UnaryCalls::Tokenize(const v1::TokenizeRequest& request,
                          const TokenizeMethod::Respond& respond) {
  // The request lives until `respond` is called.
  Respond<v1::TokenizeResponse>(
      request.text().size() > kMaxShortTextBytes || IsLong(request.chat()),
      [this, &request] { return Encode(request); }, respond);
}

absl::StatusOr<v1::TokenizeResponse> UnaryCalls::Encode(const v1::TokenizeRequest& request) const {
  const PromptEncoder& encoder = context_.validator->encoder();
  const bool add_special =
      request.has_add_special_tokens() ? request.add_special_tokens() : !request.has_chat();
  TANDEM_ASSIGN_OR_RETURN(PromptEncoder::Prompt prompt,
                          request.has_chat()
                              ? encoder.EncodeChat(request.chat(), add_special)
                              : encoder.EncodeText("text", request.text(), add_special));
  v1::TokenizeResponse reply;
  reply.mutable_ids()->Assign(prompt.ids.begin(), prompt.ids.end());
  reply.set_prompt(std::move(prompt.text));
  return reply;
}

void UnaryCalls::Detokenize(const v1::DetokenizeRequest& request,
                            const DetokenizeMethod::Respond& respond) {
  if (const absl::Status status = context_.validator->ValidateDetokenize(request); !status.ok()) {
    return respond(status);
  }
  Respond<v1::DetokenizeResponse>(
      request.ids_size() > kMaxShortIds, [this, &request] { return Decode(request); }, respond);
}

absl::StatusOr<v1::DetokenizeResponse> UnaryCalls::Decode(
    const v1::DetokenizeRequest& request) const {
  const std::span<const int32_t> ids(request.ids().data(), request.ids_size());
  const bool skip_special = !request.has_skip_special_tokens() || request.skip_special_tokens();
  TANDEM_ASSIGN_OR_RETURN(std::string text, DecodeWithin(*tokenizer_, ids, skip_special,
                                                         max_message_bytes_ - kTextFieldBytes));
  v1::DetokenizeResponse reply;
  reply.set_text(std::move(text));
  return reply;
}

void UnaryCalls::DescribeChats(v1::ServerInfo* info) const {
  const PromptEncoder& encoder = context_.validator->encoder();
  info->set_chat_template(encoder.template_name());
  info->set_chat_template_problem(encoder.template_problem());
  info->set_tool_call_format(encoder.tool_call_format(context_.tool_call_format));
}

v1::ServerInfo UnaryCalls::Info() const {
  const FleetState state = context_.fleet->State();
  v1::ServerInfo info;
  *info.mutable_load() = ServerLoadOf(state);
  info.set_version(version_);
  info.set_model(context_.model);
  info.set_admin_address(context_.admin_address);
  DescribeChats(&info);
  info.set_max_draft_length(static_cast<int>(context_.validator->limits().max_draft_length));
  info.set_max_tree_nodes(static_cast<int>(context_.validator->limits().max_tree_nodes));
  if (const v1::AttachReply* verifier = context_.fleet->promised()) {
    info.set_max_context_tokens(static_cast<int>(verifier->max_context_tokens()));
    info.set_vocabulary_size(static_cast<int>(verifier->vocabulary_size()));
    info.set_max_slots(state.gauges.slots);
    info.set_backend(verifier->backend());
    info.set_numerics_id(verifier->numerics_id());
  }
  bool any_model = false;
  for (const DraftModelState& model : state.draft_models) {
    v1::DraftModelInfo* of_model = info.add_draft_models();
    of_model->set_name(model.name);
    of_model->set_attached(model.attached);
    of_model->set_problem(model.attached ? "" : model.problem);
    of_model->set_ring_transport(RingTransportName(model.transport));
    if (model.name.empty()) continue;
    info.add_drafters(model.name);
    any_model = true;
  }
  const std::vector<std::string>& selves = state.heads.kinds;
  for (const std::string_view drafter : kDrafterNames) {
    const bool lacks_model = drafter == DrafterName(Drafter::kModel) && !any_model;
    const bool lacks_corpus =
        drafter == DrafterName(Drafter::kRetrieval) && !context_.validator->limits().has_corpus;
    const bool lacks_heads = IsSelfDrafter(*FindDrafter(drafter)) &&
                             std::find(selves.begin(), selves.end(), drafter) == selves.end();
    if (!lacks_model && !lacks_corpus && !lacks_heads) info.add_drafters(std::string(drafter));
  }
  if (state.drafter_attached()) {
    info.set_draft_model(state.drafter_names());
    info.set_drafter_attached(true);
    if (!state.transports.empty()) {
      info.set_ring_transport(RingTransportName(state.transports.front()));
    }
  } else {
    info.set_drafter_problem(state.drafter_problem());
  }
  return info;
}

}  // namespace tandem
