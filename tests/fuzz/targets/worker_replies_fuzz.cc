// Sends workers' replies to the router that are spoiled on the way. The engine may give a worker
// up, but every call must end, and only token ids of the vocabulary may reach a client.
//
// The input is a byte that chooses the requests, and then for each reply a byte (see Spoil) with
// its data. After the end of the input, the workers are honest.
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/parse.h"
#include "tests/router/engine_driver.h"

namespace tandem::fuzz {
namespace {

// Merges bytes into the first result of a batch, or into its state.
template <typename Batch>
void MergeIntoResult(Batch* batch, bool into_state, std::string_view bytes) {
  if (batch->results().empty()) return;
  auto* result = batch->mutable_results(0);
  if (into_state) {
    Merge(bytes, result->mutable_state());
  } else {
    Merge(bytes, result);
  }
}

void MergeIntoBatch(v1::DraftReply* reply, bool into_state, std::string_view bytes) {
  if (reply->has_propose()) MergeIntoResult(reply->mutable_propose(), into_state, bytes);
}
void MergeIntoBatch(v1::VerifierReply* reply, bool into_state, std::string_view bytes) {
  if (reply->has_verify()) MergeIntoResult(reply->mutable_verify(), into_state, bytes);
}

template <typename Reply>
void Spoil(FuzzInput* input, Reply* reply) {
  if (input->empty()) return;
  const uint64_t id = reply->id();
  switch (input->Byte() % 8) {
    case 0:  // made up, with the right id
      reply->Clear();
      Merge(input->Chunk(), reply);
      reply->set_id(id);
      break;
    case 1:  // made up
      reply->Clear();
      Merge(input->Chunk(), reply);
      break;
    case 2:
      Merge(input->Chunk(), reply);
      break;
    case 3:
      MergeIntoBatch(reply, false, input->Chunk());
      break;
    case 4:
      MergeIntoBatch(reply, true, input->Chunk());
      break;
    default:  // honest
      break;
  }
}

struct Driven {
  explicit Driven(FuzzInput* fuzz_input) : input(fuzz_input) {
    driver.change_draft_reply = [this](v1::DraftReply& reply) { Spoil(input, &reply); };
    driver.change_verifier_reply = [this](v1::VerifierReply& reply) { Spoil(input, &reply); };
  }

  void Request(int kind, uint8_t kinds) {
    if ((kinds >> kind & 1) == 0) return;
    GenerationRequest request = driver.Request({1, 2, 3}, 24);
    v1::SamplingParams* sampling = request.open.mutable_sampling();
    switch (kind) {
      case 0:  // greedy, drafted by heads in the verifier
        request.drafters = DrafterSet(Drafter::kMedusa);
        request.stop_strings = {"zz"};
        break;
      case 1:  // sampled, so that its blocks go through the ring
        sampling->set_temperature(1);
        sampling->set_logprobs(2);
        request.wants_logprobs = true;
        break;
      case 2:
        sampling->set_temperature(1);
        request.open.set_reproducible(true);
        request.stop_token_ids = {63};
        request.min_tokens = 4;
        break;
      default:
        request.draft_length = 0;
        request.prompt_token_ids.assign(40, 7);
        request.open.set_prompt_length(40);
        break;
    }
    driver.Send(std::move(request));
  }

  FuzzInput* input;
  testing::EngineDriver driver;
};

// Returns false if nothing happens any more after a long wait.
bool RunToRest(testing::EngineDriver& driver) {
  constexpr int kPatience = 400;  // number of ticks, at least a hundred seconds
  for (int num_ticks = 0; num_ticks < kPatience;) {
    if (driver.gave_up.has_value()) return false;
    if (driver.fleet.idle() && driver.to_verifier.empty() && driver.to_drafter.empty()) {
      return true;
    }
    if (driver.Step()) continue;
    ++num_ticks;
    driver.now = std::max(driver.now, driver.fleet.NextDeadline());
    driver.fleet.Tick(driver.now);
    driver.Execute();
  }
  return false;
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  constexpr int kNumKinds = 4;
  fuzz::FuzzInput input(data, size);
  const uint8_t kinds = input.Byte();
  fuzz::Driven driven(&input);
  testing::EngineDriver& driver = driven.driver;
  driver.verifier.options.self_drafter = "medusa";
  driver.Start();
  for (int kind = 0; kind < kNumKinds; ++kind) driven.Request(kind, kinds);
  if (!fuzz::RunToRest(driver)) {
    // A worker may have lost a command while its heartbeat is alive. Such a worker must be killed.
    // The next workers are honest.
    input.Rest();
    for (const Worker worker : {Worker::kVerifier, Worker::kDrafter}) {
      driver.Kill(worker);
      driver.Revive(worker);
    }
    fuzz::Check(driver.gave_up.has_value() || driver.Run(), "the engine comes to rest");
  }
  if (driver.gave_up.has_value()) return 0;
  for (const auto& [call, result] : driver.calls) {
    fuzz::Check(result.status.has_value(), "every call ends");
    fuzz::Check(result.ids.size() <= 24, "max_tokens is kept");
    for (const int32_t id : result.ids) {
      fuzz::Check(id >= 0 && id < 64, "token ids are of the vocabulary");
    }
  }
  return 0;
}
