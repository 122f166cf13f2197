// The smallest router that can drive both workers, with one sequence and one round after the other.
#ifndef TANDEM_TESTS_WORKER_TINY_ROUTER_H_
#define TANDEM_TESTS_WORKER_TINY_ROUTER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/token_hash.h"
#include "tandem/v1/worker.grpc.pb.h"
#include "tests/worker/slots/to_slot_open.h"
#include "tests/worker/worker_client.h"

namespace tandem::testing {

using DraftClient = WorkerClient<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>;
using VerifierClient = WorkerClient<v1::VerifierWorker, v1::VerifierCommand, v1::VerifierReply>;

inline v1::Attach AttachWith(uint32_t max_slots, uint32_t max_draft_length = kMaxDraftLength,
                             uint32_t draft_model_number = 0) {
  v1::Attach attach;
  attach.set_protocol_version(kProtocolVersion);
  attach.set_max_slots(max_slots);
  attach.set_max_draft_length(max_draft_length);
  attach.set_max_tree_nodes(kMaxTreeNodes);
  attach.set_draft_model_number(draft_model_number);
  return attach;
}

template <typename Client, typename Command>
v1::AttachReply Attach(Client& client, uint32_t max_slots, uint32_t draft_model_number = 0) {
  Command command;
  *command.mutable_attach() = AttachWith(max_slots, kMaxDraftLength, draft_model_number);
  const auto reply = client.Call(command);
  EXPECT_TRUE(reply.has_attach()) << reply.error().message();
  return reply.attach();
}

inline v1::SlotPoint PointAt(uint32_t slot, uint32_t epoch, uint64_t number,
                             const std::vector<int32_t>& tokens, size_t length) {
  v1::SlotPoint at;
  at.set_slot(slot);
  at.set_slot_epoch(epoch);
  at.set_command_number(number);
  at.set_length(static_cast<uint32_t>(length));
  at.set_prefix_hash(HashTokens(std::span(tokens).first(length)));
  return at;
}

// Sets up a ring between attached workers. Returns its epoch, or 0 if that is impossible.
inline uint64_t SetUpRing(DraftClient& draft, VerifierClient& verifier, v1::RingTransport transport,
                          uint32_t vocabulary_size, uint32_t entries = 4,
                          uint32_t draft_model_number = 0) {
  v1::VerifierCommand create;
  create.mutable_create_ring()->set_draft_model_number(draft_model_number);
  create.mutable_create_ring()->set_transport(transport);
  create.mutable_create_ring()->set_entries(entries);
  create.mutable_create_ring()->set_rows_per_entry(kMaxTreeNodes);
  create.mutable_create_ring()->set_vocabulary_size(vocabulary_size);
  const v1::VerifierReply created = verifier.Call(create);
  EXPECT_TRUE(created.has_create_ring()) << created.error().message();
  v1::DraftCommand open;
  open.mutable_open_ring()->set_transport(transport);
  open.mutable_open_ring()->set_ring_epoch(created.create_ring().ring_epoch());
  open.mutable_open_ring()->set_socket_path(created.create_ring().socket_path());
  open.mutable_open_ring()->set_entries(entries);
  open.mutable_open_ring()->set_rows_per_entry(kMaxTreeNodes);
  open.mutable_open_ring()->set_vocabulary_size(vocabulary_size);
  const v1::DraftReply opened = draft.Call(open);
  EXPECT_TRUE(opened.has_open_ring()) << opened.error().message();
  v1::VerifierCommand confirm;
  confirm.mutable_confirm_ring()->set_ring_epoch(created.create_ring().ring_epoch());
  confirm.mutable_confirm_ring()->set_nonce(opened.open_ring().nonce());
  const v1::VerifierReply confirmed = verifier.Call(confirm);
  EXPECT_TRUE(confirmed.has_confirm_ring()) << confirmed.error().message();
  return confirmed.has_confirm_ring() ? created.create_ring().ring_epoch() : 0;
}

// One sequence. Its members are public, so that tests can read and change them.
struct TinySequence {
  uint32_t slot = 0;
  uint32_t epoch = 1;
  SamplingParams params;
  uint64_t ring_epoch = 0;                  // 0: no ring
  std::vector<uint32_t> num_siblings = {};  // that the draft model is asked for
  std::vector<int32_t> tokens;              // prompt and committed output; the last one is pending
  uint32_t prompt_length = 0;
  size_t draft_cached = 0;
  size_t verifier_cached = 0;
  uint64_t draft_number = 0;
  uint64_t verifier_number = 0;
  uint64_t ring_sequence = 0;
  // Numbers of the last round.
  size_t num_drafted = 0;
  size_t num_accepted = 0;
  std::string ring_error;
  size_t num_from_siblings = 0;  // accepted siblings of all rounds

  TinySequence(std::vector<int32_t> prompt, SamplingParams sampling)
      : params(std::move(sampling)),
        tokens(std::move(prompt)),
        prompt_length(static_cast<uint32_t>(tokens.size())) {}

  v1::RingReference Ring() const {
    v1::RingReference ring;
    ring.set_ring_epoch(ring_epoch);
    ring.set_entry(static_cast<uint32_t>(ring_sequence % 4));
    ring.set_sequence(ring_sequence);
    return ring;
  }

  v1::ProposeItem NextPropose(uint32_t draft_length) {
    v1::ProposeItem item;
    *item.mutable_at() = PointAt(slot, epoch, ++draft_number, tokens, draft_cached);
    if (draft_number == 1) *item.mutable_open() = ToSlotOpen(params, prompt_length);
    item.mutable_token_ids()->Add(tokens.begin() + draft_cached, tokens.end());
    item.set_draft_length(draft_length);
    const auto num_positions = std::min<size_t>(num_siblings.size(), draft_length);
    item.mutable_num_siblings()->Add(num_siblings.begin(), num_siblings.begin() + num_positions);
    if (ring_epoch != 0) {
      ++ring_sequence;
      *item.mutable_ring() = Ring();
    }
    return item;
  }

  v1::VerifyItem NextVerify(const std::vector<int32_t>& draft_token_ids) {
    v1::VerifyItem item;
    *item.mutable_at() = PointAt(slot, epoch, ++verifier_number, tokens, verifier_cached);
    if (verifier_number == 1) *item.mutable_open() = ToSlotOpen(params, prompt_length);
    item.mutable_token_ids()->Add(tokens.begin() + verifier_cached, tokens.end());
    item.mutable_draft_token_ids()->Add(draft_token_ids.begin(), draft_token_ids.end());
    if (ring_epoch != 0 && !draft_token_ids.empty()) *item.mutable_ring() = Ring();
    item.set_sample(true);
    return item;
  }

  void Commit(const v1::ProposeResult& proposed, const v1::VerifyResult& verified) {
    // The drafter holds the committed tokens and d1 … d(K-1). The length rolls back rejected
    // tokens.
    const size_t committed = tokens.size();
    num_drafted = proposed.draft_token_ids_size();
    num_accepted = verified.num_accepted();
    ring_error = verified.ring_error();
    const bool is_tree = proposed.parents_size() > 0;
    ASSERT_EQ(verified.path_size(), is_tree ? num_accepted : 0);
    // The drafter has no row of a sibling.
    size_t num_of_chain = is_tree ? 0 : num_accepted;
    for (size_t i = 0; i < num_accepted; ++i) {
      const size_t token = is_tree ? verified.path(i) : i;
      if (is_tree && token == i) ++num_of_chain;
      tokens.push_back(proposed.draft_token_ids(token));
    }
    num_from_siblings += num_accepted - num_of_chain;
    if (num_drafted > 0) {
      draft_cached = std::min<size_t>(committed + num_of_chain, proposed.state().cached_len());
    }
    verifier_cached = tokens.size();
    ASSERT_EQ(verified.state().cached_len(), verifier_cached);
    ASSERT_EQ(verified.state().prefix_hash(), HashTokens(tokens));
    tokens.push_back(verified.next_token_id());
  }

  // Has a tree of found tokens judged, and commits its accepted path.
  void RoundWithTree(VerifierClient& verifier, const std::vector<int32_t>& token_ids,
                     const std::vector<int32_t>& parents) {
    v1::VerifierCommand command;
    v1::VerifyItem& item = *command.mutable_verify()->add_items();
    item = NextVerify(token_ids);
    item.clear_ring();
    item.mutable_parents()->Add(parents.begin(), parents.end());
    const v1::VerifyResult verified = verifier.Call(command).verify().results(0);
    ASSERT_EQ(verified.state().code(), v1::WORKER_CODE_OK) << verified.state().message();
    ASSERT_EQ(verified.num_accepted(), static_cast<uint32_t>(verified.path_size()));
    // The same command again is answered with the same path, and changes nothing.
    const v1::VerifyResult again = verifier.Call(command).verify().results(0);
    ASSERT_EQ(again.SerializeAsString(), verified.SerializeAsString());
    // The target's favorites after the pending token and after each accepted one, in their order.
    const int num_successors = params.num_successors;
    ASSERT_EQ(verified.successors_size(), num_successors * (verified.path_size() + 1));
    for (int i = 0; num_successors > 0 && params.greedy() && i <= verified.path_size(); ++i) {
      const int32_t committed =
          i < verified.path_size() ? token_ids.at(verified.path(i)) : verified.next_token_id();
      ASSERT_EQ(verified.successors(i * num_successors), committed);
      ASSERT_NE(verified.successors(i * num_successors + 1), committed);
    }
    ASSERT_EQ(verified.logprobs_size(), params.num_logprobs < 0 ? 0 : verified.path_size() + 1);
    for (const v1::TokenLogprobs& entry : verified.logprobs()) {
      ASSERT_EQ(entry.top_size(), params.num_logprobs) << "successors are no log-probs";
    }
    num_drafted = token_ids.size();
    num_accepted = verified.num_accepted();
    for (const uint32_t node : verified.path()) tokens.push_back(token_ids.at(node));
    verifier_cached = tokens.size();
    ASSERT_EQ(verified.state().cached_len(), verifier_cached);
    ASSERT_EQ(verified.state().prefix_hash(), HashTokens(tokens));
    tokens.push_back(verified.next_token_id());
  }

  // Runs draft, verify and commit.
  void Round(DraftClient* draft, VerifierClient& verifier, uint32_t draft_length) {
    v1::ProposeResult proposed;
    if (draft_length > 0) {
      v1::DraftCommand command;
      *command.mutable_propose()->add_items() = NextPropose(draft_length);
      draft->Send(command);
      v1::DraftReply reply = draft->Receive();
      while (reply.has_log_prob_chunk()) {
        v1::VerifierCommand chunk;
        *chunk.mutable_log_prob_chunk() = reply.log_prob_chunk();
        verifier.Send(chunk);
        reply = draft->Receive();
      }
      ASSERT_TRUE(reply.has_propose()) << reply.error().message();
      proposed = reply.propose().results(0);
      ASSERT_EQ(proposed.state().code(), v1::WORKER_CODE_OK) << proposed.state().message();
    }
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() =
        NextVerify({proposed.draft_token_ids().begin(), proposed.draft_token_ids().end()});
    *command.mutable_verify()->mutable_items(0)->mutable_parents() = proposed.parents();
    const v1::VerifierReply reply = verifier.Call(command);
    ASSERT_TRUE(reply.has_verify()) << reply.error().message();
    const v1::VerifyResult& verified = reply.verify().results(0);
    ASSERT_EQ(verified.state().code(), v1::WORKER_CODE_OK) << verified.state().message();
    Commit(proposed, verified);
  }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_WORKER_TINY_ROUTER_H_
