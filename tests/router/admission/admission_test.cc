#include "services/router/admission/admission.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/router/engine_driver.h"
#include "tests/router/toy_tokenizer.h"

namespace tandem::admission_test {
namespace {

using testing::GreedyRequest;
using testing::Sampled;
using testing::ToyTokenizer;
using Placed = std::vector<std::pair<CallId, size_t>>;  // calls, and the pods that took them

constexpr char kNumerics[] = "toy";

// A pod that serves. All its slots are free, and pages do not limit it.
PodView OpenPod(PodId id, uint32_t num_slots = 4, const std::string& numerics_id = kNumerics) {
  PodView pod;
  pod.id = id;
  pod.serves = pod.open = true;
  pod.numerics_id = numerics_id;
  pod.num_slots = num_slots;
  pod.room.takes = pod.room.idle = pod.room.empty = true;
  pod.room.num_slots = pod.room.num_free_slots = num_slots;
  return pod;
}

// A pod that serves, and that has no slot left.
PodView FullPod(PodId id, const std::string& numerics_id = kNumerics) {
  PodView pod = OpenPod(id, 4, numerics_id);
  pod.room.idle = pod.room.empty = false;
  pod.room.num_free_slots = 0;
  return pod;
}

// A pod whose KV cache has this number of pages of four rows.
PodView PodWithPages(PodId id, int64_t num_pages) {
  PodView pod = OpenPod(id);
  pod.room.page_tokens = 4;
  pod.room.num_pages = pod.room.num_free_pages = num_pages;
  return pod;
}

std::vector<int32_t> Prompt(int number, int length = 5) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back((number * 31 + i * 7) % 60);
  return prompt;
}

// The sequence's pod makes some tokens of its output.
void Decode(Sequence* sequence, int num_tokens = 1, const std::string& numerics_id = kNumerics) {
  for (int i = 0; i < num_tokens; ++i) {
    sequence->Append(3);
    sequence->output.Push(3, v1::TOKEN_SOURCE_PLAIN, nullptr);
    sequence->MadeWith(numerics_id);
  }
}

// Admission, the pods that a test makes up, and what they run.
struct Desk {
  explicit Desk(std::vector<PodView> all, const EngineOptions& options = {}, uint64_t turn = 0,
                EngineObserver* observer = NobodyObserves())
      : pods(std::move(all)), admission(options, &tokenizer, observer, turn) {}

  PodsView View() const { return {pods, serves, down_since}; }

  CallId Send(GenerationRequest request) {
    const CallId call = ++last_call;
    if (request.request_id.empty()) request.request_id = "r" + std::to_string(call);
    admission.Enqueue(call, std::move(request), View(), now);
    return call;
  }
  CallId Send(int number, int max_tokens = 20) {
    return Send(GreedyRequest(Prompt(number), max_tokens));
  }

  // The next placement at any pod. The pod's room stays as it is.
  std::optional<Admission::Placement> Next() {
    std::vector<size_t> all;
    for (size_t pod = 0; pod < pods.size(); ++pod) all.push_back(pod);
    return admission.Next(View(), all, now);
  }
  // Places what fits into the slots that are free.
  Placed Place() {
    Placed placed;
    while (auto placement = Next()) {
      PodView& pod = pods[placement->pod];
      pod.room.idle = pod.room.empty = false;
      --pod.room.num_free_slots;
      ++pod.room.num_open_slots;
      placement->sequence->pod = pod.id;
      placed.emplace_back(placement->sequence->call, placement->pod);
      running[placement->sequence->call] = std::move(placement->sequence);
    }
    return placed;
  }
  // A verifier dies with the sequence in its batch.
  void Die(Sequence* sequence) {
    now += 1;
    sequence->faults.VerifierLost(0, now, now);
    admission.TakeReport({.kind = PodReport::Kind::kPrompt,
                          .sequence = nullptr,
                          .prompt = sequence->witness().Report()},
                         now);
  }
  // Takes one that runs, whose slot is free again.
  std::unique_ptr<Sequence> Leave(CallId call) {
    std::unique_ptr<Sequence> sequence = std::move(running.at(call));
    running.erase(call);
    for (PodView& pod : pods) {
      if (pod.id != sequence->pod) continue;
      ++pod.room.num_free_slots;
      --pod.room.num_open_slots;
    }
    return sequence;
  }
  void Finish(CallId call, const absl::Status& status = absl::OkStatus()) {
    admission.TakeReport({PodReport::Kind::kFinished, Leave(call), status}, now);
  }

  // The calls that ended since the last time.
  std::vector<FinishCall> Ends() {
    std::vector<FinishCall> ends;
    for (EngineCommand& command : admission.TakeCommands()) {
      ends.push_back(std::get<FinishCall>(std::move(command)));
    }
    return ends;
  }
  // The only one of them.
  FinishCall End() {
    std::vector<FinishCall> ends = Ends();
    EXPECT_EQ(ends.size(), 1u);
    return ends.empty() ? FinishCall{} : ends.front();
  }
  std::vector<CallId> EndedCalls() {
    std::vector<CallId> calls;
    for (const FinishCall& end : Ends()) calls.push_back(end.call);
    return calls;
  }

  ToyTokenizer tokenizer = ToyTokenizer::OfSize(64);
  std::vector<PodView> pods;
  bool serves = true;
  double down_since = 0;
  double now = 10;
  CallId last_call = 0;
  std::map<CallId, std::unique_ptr<Sequence>> running;
  Admission admission;
};

EngineOptions Audited() {
  EngineOptions options;
  options.audit_fraction = 1;
  return options;
}

// ---------------------------------------------------------------- refusals

TEST(AdmissionTest, WithoutAPodNothingIsTaken) {
  Desk desk({});
  const std::optional<Refusal> refusal = desk.admission.RefusesAll(desk.View(), desk.now);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->status, absl::UnavailableError("no worker pod is known yet"));
  EXPECT_EQ(refusal->retry_milliseconds, 1000);
  const CallId call = desk.Send(1);
  const FinishCall end = desk.End();
  EXPECT_EQ(end.call, call);
  EXPECT_EQ(end.status, refusal->status);
  EXPECT_EQ(end.retry_milliseconds, 1000);
  EXPECT_EQ(desk.admission.num_waiting(), 0u);
}

TEST(AdmissionTest, ADrainRefusesNewRequestsAndKeepsThoseThatWait) {
  Desk desk({FullPod(0)});
  const CallId waits = desk.Send(1);
  desk.admission.Drain();
  EXPECT_TRUE(desk.admission.draining());
  desk.Send(2);
  const FinishCall end = desk.End();
  EXPECT_EQ(end.status, absl::UnavailableError(
                            "the server is draining: it finishes what runs and takes nothing new"));
  EXPECT_EQ(end.retry_milliseconds, 0) << "this server does not come back";
  desk.pods[0] = OpenPod(0);
  EXPECT_EQ(desk.Place(), (Placed{{waits, 0}}));
}

TEST(AdmissionTest, RefusesOnceTheVerifiersHaveBeenGoneForTooLong) {
  for (const size_t num_pods : {1, 2}) {
    const std::vector<PodView> gone(num_pods);
    Desk desk(gone);
    desk.serves = false;
    desk.down_since = 5;
    EXPECT_FALSE(desk.admission.RefusesAll(desk.View(), 34.9).has_value());
    const std::optional<Refusal> refusal = desk.admission.RefusesAll(desk.View(), 35);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(
        refusal->status,
        absl::UnavailableError(num_pods == 1 ? "the verifier has been gone for more than 30 s"
                                             : "all verifiers have been gone for more than 30 s"));
    EXPECT_EQ(refusal->retry_milliseconds, 1000);
    desk.serves = true;
    EXPECT_FALSE(desk.admission.RefusesAll(desk.View(), 35).has_value());
  }
}

TEST(AdmissionTest, AFullQueueSaysWhenToComeBack) {
  EngineOptions options;
  options.max_queue = 2;
  Desk desk({FullPod(0)}, options);
  desk.Send(1);
  EXPECT_FALSE(desk.admission.RefusesAll(desk.View(), desk.now).has_value());
  desk.Send(2);
  EXPECT_TRUE(desk.admission.RefusesAll(desk.View(), desk.now).has_value());
  desk.Send(3);
  const FinishCall end = desk.End();
  EXPECT_EQ(end.status,
            absl::ResourceExhaustedError("the queue is full: 2 requests wait (--max-queue)"));
  // Three requests go before this one through four slots, and each takes a second.
  EXPECT_EQ(end.retry_milliseconds, 750);
  desk.pods.push_back(FullPod(1));
  desk.Send(3);
  EXPECT_EQ(desk.End().retry_milliseconds, 375) << "the slots of all pods count";
}

TEST(AdmissionTest, TheOtherChoicesOfACallAreNoNewRequests) {
  EngineOptions options;
  options.max_queue = 1;
  Desk desk({FullPod(0)}, options);
  GenerationRequest first = GreedyRequest(Prompt(1), 20);
  first.request_id = "mine";
  first.num_choices = 3;
  desk.Send(first);
  desk.admission.Drain();
  for (const uint32_t choice : {1, 2}) {
    desk.Send(first.ForChoice(choice));
    desk.admission.RefuseOverflow(desk.View());
  }
  EXPECT_TRUE(desk.Ends().empty()) << "neither the drain nor the full queue refuses them";
  EXPECT_EQ(desk.admission.num_waiting(), 3u);
  EXPECT_EQ(desk.admission.num_request_ids(), 3u);
}

TEST(AdmissionTest, AnIdIsTakenUntilTheLastChoiceOfItsCallHasEnded) {
  Desk desk({OpenPod(0)});
  GenerationRequest first = GreedyRequest(Prompt(1), 20);
  first.request_id = "mine";
  first.num_choices = 2;
  const CallId begun = desk.Send(first);
  const CallId other = desk.Send(first.ForChoice(1));
  desk.Place();
  for (const CallId ends : {begun, other}) {
    const CallId again = desk.Send(first);
    const FinishCall refused = desk.End();
    EXPECT_EQ(refused.call, again);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kAlreadyExists);
    desk.Finish(ends);
    EXPECT_EQ(desk.EndedCalls(), std::vector<CallId>{ends});
  }
  EXPECT_EQ(desk.admission.num_request_ids(), 0u);
  desk.Send(first);
  EXPECT_TRUE(desk.Ends().empty());
}

TEST(AdmissionTest, TheRetryHintFollowsTheTimesOfFinishedRequests) {
  EngineOptions options;
  options.max_queue = 2;
  Desk desk({OpenPod(0, 2)}, options);
  const auto hint = [&] {
    desk.Send(9);
    return desk.End().retry_milliseconds;
  };
  const CallId first = desk.Send(1);
  const CallId second = desk.Send(2);
  desk.Place();
  desk.pods[0].num_slots = 4;
  for (int i = 0; i < 2; ++i) desk.Send(3);
  EXPECT_EQ(hint(), 750);
  desk.now += 21;
  // The mean goes a tenth of the way from one second to 21 seconds.
  desk.Finish(first);
  EXPECT_EQ(desk.Ends().size(), 1u);
  EXPECT_EQ(hint(), 2250);
  desk.Finish(second, absl::InternalError("failed"));
  EXPECT_EQ(desk.Ends().size(), 1u);
  EXPECT_EQ(hint(), 2250) << "a failed request says nothing";
  desk.pods[0].num_slots = 0;
  EXPECT_EQ(hint(), 9000) << "one slot is assumed while none is known";
  desk.pods[0].num_slots = 1000;
  EXPECT_EQ(hint(), 100) << "the shortest pause";
}

TEST(AdmissionTest, TheRetryHintIsAtMostTenSeconds) {
  EngineOptions options;
  options.max_queue = 20;
  Desk desk({FullPod(0)}, options);
  desk.pods[0].num_slots = 1;
  for (int i = 0; i < 20; ++i) desk.Send(1);
  desk.Send(1);
  EXPECT_EQ(desk.End().retry_milliseconds, 10000);
}

TEST(AdmissionTest, WithoutAQueueARequestIsRefusedThatFoundNoSlot) {
  EngineOptions options;
  options.max_queue = 0;
  Desk desk({OpenPod(0, 1)}, options);
  const CallId first = desk.Send(1);
  EXPECT_EQ(desk.Place(), (Placed{{first, 0}}));
  desk.admission.RefuseOverflow(desk.View());
  EXPECT_TRUE(desk.Ends().empty());

  EXPECT_FALSE(desk.admission.RefusesAll(desk.View(), desk.now).has_value());
  GenerationRequest request = GreedyRequest(Prompt(2), 20);
  request.request_id = "id";
  const CallId second = desk.Send(request);
  EXPECT_TRUE(desk.Place().empty());
  desk.admission.RefuseOverflow(desk.View());
  const FinishCall end = desk.End();
  EXPECT_EQ(end.call, second);
  EXPECT_EQ(end.status,
            absl::ResourceExhaustedError("the queue is full: 0 requests wait (--max-queue)"));
  EXPECT_EQ(end.retry_milliseconds, 1000);
  EXPECT_EQ(desk.admission.num_finished(), 0u) << "a refused request is not a finished one";
  desk.Send(request);
  EXPECT_TRUE(desk.Ends().empty()) << "its id is free again";
}

TEST(AdmissionTest, OnlyTheNewestRequestOverflows) {
  EngineOptions options;
  options.max_queue = 1;
  Desk desk({OpenPod(0, 1)}, options);
  const CallId moved = desk.Send(1);
  desk.Place();
  const CallId waits = desk.Send(2);
  desk.admission.TakeReport({PodReport::Kind::kPreempted, desk.Leave(moved)}, desk.now);
  desk.admission.RefuseOverflow(desk.View());
  EXPECT_TRUE(desk.Ends().empty()) << "a stream that lost its place takes no place of the queue";
  EXPECT_EQ(desk.admission.num_waiting(), 2u);
  EXPECT_NE(desk.admission.TakeBack(waits), nullptr);
}

TEST(AdmissionTest, AnIdIsInUseUntilItsRequestEnds) {
  Desk desk({OpenPod(0)});
  GenerationRequest request = GreedyRequest(Prompt(1), 20);
  request.request_id = "mine";
  const auto is_in_use = [&] {
    const CallId call = desk.Send(request);
    for (const FinishCall& end : desk.Ends()) {
      EXPECT_EQ(end.call, call);
      EXPECT_EQ(end.status,
                absl::AlreadyExistsError("request_id: \"mine\" is running; allowed: one that is "
                                         "not, or empty for a new one"));
      EXPECT_EQ(end.retry_milliseconds, 0);
      return true;
    }
    return false;
  };
  EXPECT_FALSE(is_in_use());
  const CallId first = desk.last_call;
  EXPECT_TRUE(is_in_use()) << "it waits";
  desk.Place();
  EXPECT_TRUE(is_in_use()) << "it runs";
  desk.admission.Return(desk.Leave(first), desk.now);
  EXPECT_TRUE(is_in_use()) << "it lost its place";
  desk.Place();
  desk.Finish(first);
  EXPECT_EQ(desk.EndedCalls(), std::vector<CallId>{first});
  EXPECT_FALSE(is_in_use());

  const std::unique_ptr<Sequence> canceled = desk.admission.TakeBack(desk.last_call);
  ASSERT_NE(canceled, nullptr);
  EXPECT_TRUE(is_in_use());
  desk.admission.Forget(*canceled, desk.now);
  EXPECT_FALSE(is_in_use());
}

TEST(AdmissionTest, APromptThatTheLargestCacheCannotHoldIsRefused) {
  Desk desk({PodWithPages(0, 5), PodWithPages(1, 10)});
  desk.Send(GreedyRequest(Prompt(1, 40), 1));
  EXPECT_EQ(desk.End().status,
            absl::ResourceExhaustedError("prompt: 40 tokens; allowed: 39, which is what the KV "
                                         "cache holds with one token more (--kv-cache-bytes)"));
  const CallId longest = desk.Send(GreedyRequest(Prompt(1, 39), 7));
  EXPECT_EQ(desk.Place(), (Placed{{longest, 1}}));
  EXPECT_EQ(desk.running[longest]->request.max_tokens, 1);
}

TEST(AdmissionTest, TheLargestCacheLimitsTheLengthOfTheOutput) {
  Desk desk({PodWithPages(0, 5), PodWithPages(1, 10)});
  GenerationRequest long_request = GreedyRequest(Prompt(1, 10), 31);
  long_request.max_tokens_given = true;
  const CallId cut = desk.Send(std::move(long_request));
  const CallId whole = desk.Send(GreedyRequest(Prompt(2, 10), 30));
  const CallId small = desk.Send(GreedyRequest(Prompt(3, 10), 10));
  desk.Place();
  EXPECT_EQ(desk.running[cut]->request.max_tokens, 30);
  EXPECT_EQ(
      desk.running[cut]->request.warnings,
      std::vector<std::string>{"max_tokens: got 31, cut to 30: the KV cache of 40 tokens also "
                               "holds the prompt's 10 tokens"});
  EXPECT_TRUE(desk.running[whole]->request.warnings.empty());
  EXPECT_EQ(desk.running[whole]->request.max_tokens, 30);
  EXPECT_EQ(desk.running[small]->request.max_tokens, 10);

  Desk unlimited({OpenPod(0)});
  const CallId any = unlimited.Send(GreedyRequest(Prompt(1, 10), 100000));
  unlimited.Place();
  EXPECT_EQ(unlimited.running[any]->request.max_tokens, 100000);
}

TEST(AdmissionTest, ARequestGoesOnlyToACacheThatCouldHoldAllOfIt) {
  Desk desk({PodWithPages(0, 5), PodWithPages(1, 10)});
  desk.pods[1].room.num_free_slots = 0;
  const CallId large = desk.Send(GreedyRequest(Prompt(1, 10), 11));
  EXPECT_TRUE(desk.Place().empty());
  const CallId small = desk.Send(GreedyRequest(Prompt(2, 10), 10));
  EXPECT_EQ(desk.Place(), (Placed{{small, 0}})) << "the larger one does not keep it from pod 0";
  desk.pods[1].room.num_free_slots = 1;
  EXPECT_EQ(desk.Place(), (Placed{{large, 1}}));
}

// ---------------------------------------------------------------- quarantine

TEST(AdmissionTest, ASuspectEndsAndItsPromptIsRefusedForAWhile) {
  EngineOptions options;
  options.max_lost_rounds = 2;
  Desk desk({OpenPod(0)}, options);
  const CallId poison = desk.Send(1);
  desk.Place();
  std::unique_ptr<Sequence> suspect = desk.Leave(poison);
  Decode(suspect.get(), 3);
  desk.Die(suspect.get());
  desk.Die(suspect.get());
  suspect->last_slot = SlotLife{3, 7};
  desk.admission.TakeReport({PodReport::Kind::kSuspect, std::move(suspect)}, desk.now);
  const FinishCall end = desk.End();
  EXPECT_EQ(end.call, poison);
  EXPECT_EQ(end.status, absl::FailedPreconditionError("quarantined: the verifier died 2 times in "
                                                      "a row while computing this request"));
  EXPECT_EQ(end.emitted_tokens, 3);
  ASSERT_TRUE(end.slot.has_value());
  EXPECT_EQ(end.slot->slot, 3u);
  EXPECT_EQ(end.slot->epoch, 7u);
  EXPECT_EQ(desk.admission.num_finished(), 1u);

  desk.Send(1);
  EXPECT_EQ(desk.End().status,
            absl::FailedPreconditionError("quarantined: the verifier died 2 times in a row while "
                                          "computing this prompt; it is refused for 600 s"));
  desk.Send(2);
  EXPECT_TRUE(desk.Ends().empty()) << "other prompts are welcome";
  desk.now += 599.9;
  desk.Send(1);
  EXPECT_EQ(desk.Ends().size(), 1u);
  desk.now += 0.2;
  desk.Send(1);
  EXPECT_TRUE(desk.Ends().empty());
}

TEST(AdmissionTest, CopiesOfAPromptInQuarantineEndUnlessAVerifierHasComputedIt) {
  EngineOptions options;
  options.max_lost_rounds = 2;
  Desk desk({OpenPod(0)}, options);
  const CallId poison = desk.Send(1);
  const CallId running = desk.Send(1);
  const CallId moving = desk.Send(1);
  const CallId proven = desk.Send(1);
  desk.Place();
  const CallId waiting = desk.Send(1);
  const CallId other = desk.Send(2);
  desk.admission.Return(desk.Leave(moving), desk.now);
  std::unique_ptr<Sequence> with_output = desk.Leave(proven);
  with_output->furthest_len = with_output->prompt_len();
  desk.admission.Return(std::move(with_output), desk.now);
  std::unique_ptr<Sequence> suspect = desk.Leave(poison);
  EXPECT_FALSE(desk.admission.IsQuarantined(*desk.running.at(running), desk.now));
  for (int i = 0; i < 2; ++i) desk.Die(suspect.get());
  desk.admission.TakeReport({PodReport::Kind::kSuspect, std::move(suspect)}, desk.now);
  desk.admission.EndWaitingCopies(desk.now);
  EXPECT_EQ(desk.EndedCalls(), (std::vector<CallId>{poison, moving, waiting}));
  // What is in a slot is asked for by the fleet.
  ASSERT_TRUE(desk.admission.IsQuarantined(*desk.running.at(running), desk.now));
  desk.admission.EndQuarantined(*desk.Leave(running));
  const FinishCall end = desk.End();
  EXPECT_EQ(end.call, running);
  EXPECT_EQ(end.status,
            absl::FailedPreconditionError("quarantined: the verifier died 2 times in a row while "
                                          "computing this prompt; it is refused for 600 s"));
  desk.pods[0].room.num_free_slots = 4;
  desk.pods[0].heard_at = desk.now + 1;
  EXPECT_EQ(desk.Place(), (Placed{{proven, 0}, {other, 0}}));
}

TEST(AdmissionTest, ADeathOutlivesTheRequestThatSawIt) {
  EngineOptions options;
  options.max_lost_rounds = 2;
  for (const bool is_canceled : {false, true}) {
    Desk desk({OpenPod(0)}, options);
    const CallId first = desk.Send(1);
    desk.Place();
    std::unique_ptr<Sequence> sequence = desk.Leave(first);
    desk.Die(sequence.get());
    if (is_canceled) {
      desk.admission.Forget(*sequence, desk.now);
    } else {
      desk.admission.TakeReport({PodReport::Kind::kFinished, std::move(sequence),
                                 absl::UnavailableError("the verifier has gone")},
                                desk.now);
      EXPECT_EQ(desk.End().call, first);
    }
    desk.pods[0].heard_at = desk.now + 1;
    const CallId second = desk.Send(1);
    desk.Place();
    sequence = desk.Leave(second);
    EXPECT_EQ(sequence->faults.verifiers_lost(), 1) << "it begins with what is known of its prompt";
    desk.Die(sequence.get());
    desk.admission.TakeReport({PodReport::Kind::kSuspect, std::move(sequence)}, desk.now);
    EXPECT_EQ(desk.End().status.code(), absl::StatusCode::kFailedPrecondition);
    const CallId other = desk.Send(2);
    desk.Place();
    EXPECT_EQ(desk.Leave(other)->faults.verifiers_lost(), 0);
  }
}

TEST(AdmissionTest, APromptThatAVerifierComputedIsNoSuspectAnymore) {
  EngineOptions options;
  options.max_lost_rounds = 2;
  Desk desk({OpenPod(0)}, options);
  const auto run = [&] {
    const CallId call = desk.Send(1);
    desk.pods[0].heard_at = desk.now + 1;
    desk.Place();
    return call;
  };
  const CallId first = run();
  desk.Die(desk.running.at(first).get());
  desk.Finish(first, absl::UnavailableError("the verifier has gone"));
  const CallId second = run();
  Sequence& sequence = *desk.running.at(second);
  EXPECT_EQ(sequence.faults.verifiers_lost(), 1);
  sequence.furthest_len = sequence.prompt_len();
  sequence.faults.VerifierHolds(sequence.prompt_len());
  EXPECT_EQ(sequence.faults.verifiers_lost(), 0);
  desk.Finish(second);
  EXPECT_EQ(desk.running.at(run())->faults.verifiers_lost(), 0);
}

TEST(AdmissionTest, WhatWaitsLearnsOfADeathOfItsPrompt) {
  EngineOptions options;
  options.max_lost_rounds = 2;
  Desk desk({OpenPod(0, 1)}, options);
  const CallId first = desk.Send(1);
  desk.Place();
  const CallId copy = desk.Send(1);
  const CallId other = desk.Send(2);
  desk.Die(desk.running.at(first).get());
  desk.admission.EndWaitingCopies(desk.now);
  EXPECT_TRUE(desk.Ends().empty()) << "one death is no proof";
  desk.pods[0].heard_at = desk.now + 1;
  for (const auto& [call, num_deaths] : {std::pair{copy, 1}, {other, 0}}) {
    desk.pods[0].room.num_free_slots = 1;
    desk.Place();
    EXPECT_EQ(desk.running.at(call)->faults.verifiers_lost(), num_deaths);
  }
}

TEST(QuarantineTest, KnowsThePromptsWithTheMostDeathsAndThenTheNewest) {
  Quarantine quarantine;
  quarantine.Add(1000, {.num = 2}, 0);
  for (uint64_t i = 0; i < Quarantine::kMaxPrompts; ++i) {
    const auto now = static_cast<double>(i);
    quarantine.Add(i, {.num = 1, .last_at = now}, now);
  }
  EXPECT_EQ(quarantine.Find(1000, 100).num, 2);
  EXPECT_EQ(quarantine.Find(0, 100).num, 0);
  for (uint64_t i = 1; i < Quarantine::kMaxPrompts; ++i) {
    EXPECT_EQ(quarantine.Find(i, 100).num, 1) << i;
  }
  EXPECT_EQ(quarantine.Find(2000, 100).num, 0);
}

TEST(QuarantineTest, WhatHasExpiredTakesNoPlace) {
  Quarantine quarantine;
  for (uint64_t i = 0; i < Quarantine::kMaxPrompts; ++i) quarantine.Add(i, {.num = 2}, 0);
  quarantine.Add(1000, {.num = 1, .last_at = 601}, 601);
  EXPECT_EQ(quarantine.Find(1000, 602).num, 1);
  quarantine.EraseExpired(1202);
  EXPECT_TRUE(quarantine.empty());
}

TEST(QuarantineTest, FewerDeathsDoNotReplaceMore) {
  Quarantine quarantine;
  quarantine.Add(7, {.num = 2}, 0);
  quarantine.Add(7, {.num = 1, .last_at = 100}, 100);
  EXPECT_EQ(quarantine.Find(7, 200).num, 2);
  EXPECT_EQ(quarantine.Find(7, 601).num, 0) << "it is not renewed either";
}

TEST(QuarantineTest, APromptTakesOnePlaceAndIsForgottenInTime) {
  Quarantine quarantine;
  quarantine.Add(1000, {.num = 1}, 0);
  for (size_t i = 0; i < 2 * Quarantine::kMaxPrompts; ++i) {
    const auto now = static_cast<double>(i);
    quarantine.Add(7, {.num = 1, .last_at = now}, now);
  }
  EXPECT_EQ(quarantine.Find(1000, 599).num, 1);
  EXPECT_EQ(quarantine.Find(1000, 601).num, 0);
  EXPECT_EQ(quarantine.Find(7, 601).num, 1);
  quarantine.VerifierHolds(7, 0);
  EXPECT_EQ(quarantine.Find(7, 1).num, 1) << "no more than a verifier that died";
  quarantine.VerifierHolds(7, 1);
  EXPECT_EQ(quarantine.Find(7, 1).num, 0);
}

// ---------------------------------------------------------------- order

TEST(AdmissionTest, FirstComeIsFirstServed) {
  Desk desk({OpenPod(0, 2)});
  const CallId first = desk.Send(1);
  const CallId second = desk.Send(2);
  const CallId third = desk.Send(3);
  EXPECT_EQ(desk.Place(), (Placed{{first, 0}, {second, 0}}));
  EXPECT_LT(desk.running[first]->order, desk.running[second]->order);
  desk.Finish(second);
  EXPECT_EQ(desk.Place(), (Placed{{third, 0}}));
}

TEST(AdmissionTest, StreamsThatLostTheirPlaceGoBeforeNewRequestsAndTheOldestFirst) {
  Desk desk({OpenPod(0, 3)});
  const CallId first = desk.Send(1);
  const CallId second = desk.Send(2);
  const CallId third = desk.Send(3);
  desk.Place();
  const CallId newest = desk.Send(4);
  const uint64_t order = desk.running[second]->order;
  desk.admission.TakeReport({PodReport::Kind::kPreempted, desk.Leave(second)}, desk.now);
  desk.admission.Return(desk.Leave(third), desk.now);
  desk.admission.Return(desk.Leave(first), desk.now);
  EXPECT_TRUE(desk.Ends().empty());
  EXPECT_EQ(desk.admission.num_waiting(), 4u);
  EXPECT_EQ(desk.Place(), (Placed{{first, 0}, {second, 0}, {third, 0}}));
  EXPECT_EQ(desk.running[second]->order, order) << "its rank is that of its first admission";
  desk.Finish(first);
  EXPECT_EQ(desk.Place(), (Placed{{newest, 0}}));
}

TEST(AdmissionTest, AYoungerRequestDoesNotPassAnOlderOneThatWaitsForTheSamePod) {
  Desk desk({PodWithPages(0, 20)});
  desk.pods[0].room.idle = false;
  desk.pods[0].room.num_free_pages = 5;
  const CallId large = desk.Send(GreedyRequest(Prompt(1, 30), 10));
  const CallId small = desk.Send(GreedyRequest(Prompt(2, 5), 10));
  EXPECT_TRUE(desk.Place().empty());
  EXPECT_NE(desk.admission.TakeBack(large), nullptr);
  EXPECT_EQ(desk.Place(), (Placed{{small, 0}})) << "it would have fitted";
}

TEST(AdmissionTest, WhatWaitsForOnePodKeepsNobodyFromAnother) {
  Desk desk({OpenPod(0, 1), OpenPod(1, 1, "other")});
  const CallId first = desk.Send(1);
  EXPECT_EQ(desk.Place(), (Placed{{first, 0}}));
  Decode(desk.running[first].get());
  desk.admission.Return(desk.Leave(first), desk.now);
  desk.pods[0].room.num_free_slots = 0;  // others were faster
  const CallId second = desk.Send(2);
  EXPECT_EQ(desk.Place(), (Placed{{second, 1}}));
  const CallId third = desk.Send(3);
  EXPECT_TRUE(desk.Place().empty());
  desk.pods[0].room.num_free_slots = 1;
  EXPECT_EQ(desk.Place(), (Placed{{first, 0}})) << "the third waits behind it here";
  EXPECT_NE(desk.admission.TakeBack(third), nullptr);
}

TEST(AdmissionTest, OnlyCandidatesThatAreOpenGetSequences) {
  Desk desk({OpenPod(0), OpenPod(1), OpenPod(2), OpenPod(3)});
  desk.pods[1].open = false;
  desk.pods[2].room.takes = false;
  const CallId call = desk.Send(1);
  EXPECT_FALSE(desk.admission.Next(desk.View(), {}, desk.now).has_value());
  EXPECT_FALSE(desk.admission.Next(desk.View(), {1, 2}, desk.now).has_value());
  const auto placement = desk.admission.Next(desk.View(), {1, 2, 3}, desk.now);
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->pod, 3u);
  EXPECT_EQ(placement->sequence->call, call);
}

TEST(AdmissionTest, EqualPodsTakeTurnsFromTheGivenTurnOn) {
  Desk desk({OpenPod(0), OpenPod(1), OpenPod(2)}, {}, /*turn=*/1);
  for (int i = 0; i < 4; ++i) desk.Send(i);
  std::vector<size_t> turns;
  while (const auto placement = desk.Next()) turns.push_back(placement->pod);
  EXPECT_EQ(turns, (std::vector<size_t>{1, 2, 0, 1}));
}

TEST(AdmissionTest, ARequestThatIsTakenBackWaitsNoLonger) {
  Desk desk({FullPod(0)});
  const CallId first = desk.Send(1);
  const CallId second = desk.Send(2);
  EXPECT_EQ(desk.admission.TakeBack(99), nullptr);
  const std::unique_ptr<Sequence> taken = desk.admission.TakeBack(first);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->call, first);
  EXPECT_EQ(desk.admission.TakeBack(first), nullptr);
  EXPECT_EQ(desk.admission.num_waiting(), 1u);
  desk.pods[0] = OpenPod(0);
  EXPECT_EQ(desk.Place(), (Placed{{second, 0}}));
}

// Notes how long requests waited.
struct WaitObserver : EngineObserver {
  void OnAdmitted(double queue_seconds) override { waits.push_back(queue_seconds); }
  std::vector<double> waits;
};

TEST(AdmissionTest, TheTimeInTheQueueIsToldOnceForEachRequest) {
  WaitObserver observer;
  Desk desk({FullPod(0)}, Audited(), 0, &observer);
  GenerationRequest request = GreedyRequest(Prompt(1), 20);
  request.arrived_at = 9;  // before its prompt was tokenized
  const CallId first = desk.Send(std::move(request));
  desk.Send(2);
  desk.now = 12;
  desk.pods[0] = OpenPod(0);
  desk.Place();
  EXPECT_EQ(observer.waits, (std::vector<double>{3, 2}));
  EXPECT_EQ(desk.running[first]->account.admitted_at(), 12);
  desk.now = 13;
  desk.admission.Return(desk.Leave(first), desk.now);
  desk.Place();
  EXPECT_EQ(observer.waits.size(), 2u) << "a stream is admitted once";
  EXPECT_EQ(desk.running[first]->account.admitted_at(), 12);
  Decode(desk.running[first].get());
  desk.Finish(first);
  desk.pods[0].room.empty = true;
  EXPECT_EQ(desk.Place().size(), 1u);
  EXPECT_EQ(observer.waits.size(), 2u) << "nobody waited for the replay";
}

// ---------------------------------------------------------------- numerics and dead pods

TEST(AdmissionTest, AStreamWithOutputGoesOnlyWhereItsNumericsAre) {
  Desk desk({OpenPod(0), FullPod(1, "other")});
  const CallId fresh = desk.Send(1);
  const CallId begun = desk.Send(2);
  desk.Place();
  Decode(desk.running[begun].get());
  desk.pods[0] = FullPod(0);
  desk.pods[0].open = false;
  desk.pods[1] = OpenPod(1, 4, "other");
  desk.admission.Return(std::move(desk.running[fresh]), desk.now);
  desk.admission.Return(std::move(desk.running[begun]), desk.now);
  EXPECT_TRUE(desk.admission.num_waiting() == 2);
  EXPECT_EQ(desk.Place(), (Placed{{fresh, 1}})) << "without output any numerics will do";
  desk.pods.push_back(OpenPod(2));
  EXPECT_EQ(desk.Place(), (Placed{{begun, 2}}));
}

TEST(AdmissionTest, ItsOwnPodWithOtherNumericsIsTheSecondChoiceOfAStream) {
  Desk desk({OpenPod(0), FullPod(1)});
  const CallId call = desk.Send(1);
  EXPECT_EQ(desk.Place(), (Placed{{call, 0}}));
  Decode(desk.running[call].get());
  desk.admission.Return(desk.Leave(call), desk.now);
  desk.pods[0].numerics_id = "other";
  desk.pods.push_back(OpenPod(2, 4, "other"));
  EXPECT_TRUE(desk.Place().empty()) << "it waits for pod 1, which keeps its numerics";
  desk.pods[1].open = false;
  EXPECT_EQ(desk.Place(), (Placed{{call, 0}})) << "pod 2 never had it";
}

TEST(AdmissionTest, ItsOwnPodTakesAStreamBackWhileItServes) {
  Desk desk({OpenPod(0), OpenPod(1, 4, "other")});
  const CallId call = desk.Send(1);
  EXPECT_EQ(desk.Place(), (Placed{{call, 0}}));
  Decode(desk.running[call].get());
  desk.admission.Return(desk.Leave(call), desk.now);
  desk.pods[0].open = false;  // it leaves the list
  EXPECT_TRUE(desk.admission.AwaitsPod(desk.pods[0]));
  EXPECT_FALSE(desk.admission.AwaitsPod(desk.pods[1]));
  desk.pods[0].serves = false;
  EXPECT_FALSE(desk.admission.AwaitsPod(desk.pods[0]));
  EXPECT_TRUE(desk.Place().empty());
  desk.pods[0].serves = true;
  EXPECT_EQ(desk.Place(), (Placed{{call, 0}}));
  EXPECT_FALSE(desk.admission.AwaitsPod(desk.pods[0])) << "nothing waits any more";
}

TEST(AdmissionTest, AStreamLeavesItsOwnPodAloneWhileAnotherOneSuitsIt) {
  Desk desk({OpenPod(0), OpenPod(1)});
  const CallId call = desk.Send(1);
  EXPECT_EQ(desk.Place(), (Placed{{call, 0}}));
  Decode(desk.running[call].get());
  desk.admission.Return(desk.Leave(call), desk.now);
  desk.pods[0].open = false;
  desk.pods[1] = FullPod(1);
  EXPECT_TRUE(desk.Place().empty()) << "it waits for room at the pod that suits it";
  desk.pods[1] = OpenPod(1);
  EXPECT_EQ(desk.Place(), (Placed{{call, 1}}));
}

TEST(AdmissionTest, ASuspectedStreamWaitsForAPodThatWasHeardSince) {
  Desk desk({OpenPod(0), OpenPod(1)});
  const CallId call = desk.Send(1);
  desk.Place();
  std::unique_ptr<Sequence> lost = desk.Leave(call);
  lost->faults.VerifierLost(0, 20, 20);
  desk.now = 21;
  desk.pods[0].open = false;
  desk.pods[1].heard_at = 20;
  desk.admission.Return(std::move(lost), desk.now);
  const CallId other = desk.Send(2);
  EXPECT_EQ(desk.Place(), (Placed{{other, 1}})) << "it keeps nobody from the pod meanwhile";
  desk.pods[1].heard_at = 20.5;
  EXPECT_EQ(desk.Place(), (Placed{{call, 1}}));
}

// ---------------------------------------------------------------- checks of what waits

TEST(AdmissionTest, WhatWaitsEndsWhenNoVerifierServedForTooLong) {
  for (const size_t num_pods : {1, 2}) {
    const std::vector<PodView> gone(num_pods);
    Desk desk(gone);
    desk.serves = false;
    desk.down_since = 5;
    desk.Send(1);
    desk.Send(2);
    desk.admission.Check(desk.View(), 34.9);
    EXPECT_TRUE(desk.Ends().empty());
    desk.admission.Check(desk.View(), 35);  // 25 seconds after they came
    const std::vector<FinishCall> ends = desk.Ends();
    ASSERT_EQ(ends.size(), 2u);
    for (const FinishCall& end : ends) {
      EXPECT_EQ(end.status, absl::UnavailableError(
                                num_pods == 1 ? "the verifier has been gone for more than 30 s"
                                              : "all verifiers have been gone for more than 30 s"));
    }
    EXPECT_EQ(desk.admission.num_waiting(), 0u);
    EXPECT_EQ(desk.admission.num_finished(), 2u);
    EXPECT_TRUE(std::isinf(desk.admission.check_at()));
  }
}

TEST(AdmissionTest, AStreamEndsThatNoServingPodCouldGoOnWith) {
  Desk desk({OpenPod(0), FullPod(1, "other")});
  const CallId stream = desk.Send(1);
  desk.Place();
  Decode(desk.running[stream].get(), 2);
  std::unique_ptr<Sequence> lost = desk.Leave(stream);
  lost->last_slot = SlotLife{2, 5};
  desk.pods[0].serves = desk.pods[0].open = false;
  desk.now = 20;
  desk.admission.Return(std::move(lost), desk.now);
  desk.Send(2);  // waits for a slot of pod 1
  for (double now = 21; now < 50; ++now) desk.admission.Check(desk.View(), now);
  EXPECT_TRUE(desk.Ends().empty());
  desk.admission.Check(desk.View(), 50);
  const FinishCall end = desk.End();
  EXPECT_EQ(end.call, stream);
  EXPECT_EQ(end.status,
            absl::UnavailableError("no verifier that could go on has served for more than 30 s"));
  EXPECT_EQ(end.emitted_tokens, 2);
  ASSERT_TRUE(end.slot.has_value());
  EXPECT_EQ(end.slot->slot, 2u);
  desk.admission.Check(desk.View(), 500);
  EXPECT_TRUE(desk.Ends().empty()) << "a full pod serves: the other one may wait for ever";
  EXPECT_EQ(desk.admission.num_waiting(), 1u);
}

TEST(AdmissionTest, MayRunSomewhereAsksForNoRoom) {
  Desk desk({FullPod(0), OpenPod(1, 4, "other")});
  const CallId call = desk.Send(1);
  const std::unique_ptr<Sequence> stream = desk.admission.TakeBack(call);
  Decode(stream.get());
  EXPECT_TRUE(desk.admission.MayRunSomewhere(desk.View(), *stream));
  desk.pods[0].open = false;
  EXPECT_FALSE(desk.admission.MayRunSomewhere(desk.View(), *stream));
}

TEST(AdmissionTest, NoteServedPutsTheEndOff) {
  for (const bool is_noted : {false, true}) {
    Desk desk({FullPod(0), FullPod(1, "other")});
    const CallId call = desk.Send(1);
    std::unique_ptr<Sequence> stream = desk.admission.TakeBack(call);
    Decode(stream.get());
    desk.admission.Return(std::move(stream), desk.now);
    if (is_noted) desk.admission.NoteServed(desk.View(), 35);
    desk.pods.erase(desk.pods.begin());
    desk.admission.Check(desk.View(), 39.9);
    EXPECT_TRUE(desk.Ends().empty());
    desk.admission.Check(desk.View(), 64.9);
    EXPECT_EQ(desk.Ends().size(), is_noted ? 0u : 1u);
    desk.admission.NoteServed(desk.View(), 64.9);  // it cannot run at the pod that is left
    desk.admission.Check(desk.View(), 65);
    EXPECT_EQ(desk.Ends().size(), is_noted ? 1u : 0u);
  }
}

TEST(AdmissionTest, ChecksAreDueWhileAnythingWaits) {
  Desk desk({FullPod(0)});
  EXPECT_TRUE(std::isinf(desk.admission.check_at()));
  desk.pods[0].room.takes_at = 10.5;
  EXPECT_FALSE(desk.Next().has_value());
  EXPECT_TRUE(std::isinf(desk.admission.check_at())) << "there is nothing to check";
  const CallId call = desk.Send(1);
  EXPECT_EQ(desk.admission.check_at(), 11);
  desk.now = 10.9;
  desk.Send(2);
  EXPECT_EQ(desk.admission.check_at(), 11) << "what comes later does not put it off";
  for (const auto& [takes_at, check_at] : {std::pair{10.5, 11.0}, {12.0, 11.0}, {10.95, 10.95}}) {
    desk.pods[0].room.takes_at = takes_at;
    EXPECT_FALSE(desk.Next().has_value());
    EXPECT_EQ(desk.admission.check_at(), check_at) << takes_at;
  }
  desk.admission.Check(desk.View(), 11);
  EXPECT_EQ(desk.admission.check_at(), 12);
  desk.pods[0] = OpenPod(0);
  EXPECT_EQ(desk.Place().size(), 2u);
  desk.admission.Check(desk.View(), 12);
  EXPECT_TRUE(std::isinf(desk.admission.check_at()));
  desk.now = 20;
  desk.admission.Return(desk.Leave(call), desk.now);
  EXPECT_EQ(desk.admission.check_at(), 21);
}

TEST(AdmissionTest, ShortTimeoutsAreCheckedFourTimes) {
  for (const auto& [timeout, pause] : {std::pair{2.0, 0.5}, {30.0, 1.0}, {0.001, 0.01}}) {
    EngineOptions options;
    options.verifier_timeout_seconds = timeout;
    Desk desk({FullPod(0)}, options);
    desk.Send(1);
    EXPECT_EQ(desk.admission.check_at(), desk.now + pause);
  }
}

// ---------------------------------------------------------------- ends

TEST(AdmissionTest, AFinishedRequestEndsWithWhatItWasGiven) {
  Desk desk({OpenPod(0)});
  const CallId call = desk.Send(1);
  desk.Place();
  Decode(desk.running[call].get(), 4);
  desk.running[call]->last_slot = SlotLife{1, 9};
  desk.Finish(call, absl::InternalError("why"));
  const FinishCall end = desk.End();
  EXPECT_EQ(end.call, call);
  EXPECT_EQ(end.status, absl::InternalError("why"));
  EXPECT_EQ(end.emitted_tokens, 4);
  EXPECT_EQ(end.retry_milliseconds, 0);
  ASSERT_TRUE(end.slot.has_value());
  EXPECT_EQ(end.slot->slot, 1u);
  EXPECT_EQ(end.slot->epoch, 9u);
  EXPECT_EQ(desk.admission.num_finished(), 1u);
  EXPECT_TRUE(desk.Ends().empty()) << "commands are taken once";
}

TEST(AdmissionTest, EndAllEndsWhateverWaits) {
  Desk desk({OpenPod(0, 1)});
  const CallId moving = desk.Send(1);
  desk.Place();
  const CallId waiting = desk.Send(2);
  desk.admission.Return(desk.Leave(moving), desk.now);
  desk.admission.EndAll(absl::UnavailableError("the server stops"));
  const std::vector<FinishCall> ends = desk.Ends();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].call, moving);
  EXPECT_EQ(ends[1].call, waiting);
  EXPECT_EQ(ends[1].status, absl::UnavailableError("the server stops"));
  EXPECT_EQ(desk.admission.num_waiting(), 0u);
  EXPECT_TRUE(desk.Place().empty());
}

// ---------------------------------------------------------------- replays

// Runs a request to its end at the first pod, and empties the pod.
CallId RunOne(Desk* desk, GenerationRequest request, const std::string& numerics_id = kNumerics,
              const absl::Status& status = absl::OkStatus()) {
  const CallId call = desk->Send(std::move(request));
  EXPECT_EQ(desk->Place().size(), 1u);
  Decode(desk->running[call].get(), 3, numerics_id);
  desk->Finish(call, status);
  EXPECT_EQ(desk->EndedCalls(), std::vector<CallId>{call});
  desk->pods[0].room.idle = desk->pods[0].room.empty = true;
  return call;
}
CallId RunOne(Desk* desk, int number = 1) {
  return RunOne(desk, GreedyRequest(Prompt(number), 20));
}

TEST(AdmissionTest, AnAuditedRequestIsDecodedAgain) {
  Desk desk({OpenPod(0)}, Audited());
  const CallId call = RunOne(&desk);
  EXPECT_EQ(desk.admission.num_waiting(), 0u) << "no client waits for a replay";
  const auto placement = desk.Next();
  ASSERT_TRUE(placement.has_value());
  const Sequence& replay = *placement->sequence;
  EXPECT_TRUE(replay.is_replay());
  EXPECT_EQ(replay.call, call);
  EXPECT_EQ(replay.expected, (std::vector<int32_t>{3, 3, 3}));
  EXPECT_FALSE(replay.has_output());
  EXPECT_NE(replay.request.open.cache_salt(), "") << "a replay shares no page with a client";
  EXPECT_FALSE(desk.Next().has_value()) << "it is decoded once";
}

TEST(AdmissionTest, ReplaysAreYoungerThanAnyRequest) {
  Desk desk({OpenPod(0)}, Audited());
  RunOne(&desk);
  const auto replay = desk.Next();
  ASSERT_TRUE(replay.has_value());
  const CallId later = desk.Send(2);
  desk.Place();
  EXPECT_GT(replay->sequence->order, desk.running[later]->order);
}

TEST(AdmissionTest, TheEndOfAReplayIsToldToNobody) {
  for (const PodReport::Kind kind : {PodReport::Kind::kFinished, PodReport::Kind::kSuspect}) {
    Desk desk({OpenPod(0)}, Audited());
    RunOne(&desk);
    auto replay = desk.Next();
    ASSERT_TRUE(replay.has_value());
    if (kind == PodReport::Kind::kSuspect) {
      for (int i = 0; i < 2; ++i) desk.Die(replay->sequence.get());
    }
    desk.admission.TakeReport({kind, std::move(replay->sequence)}, desk.now);
    EXPECT_TRUE(desk.Ends().empty());
    EXPECT_EQ(desk.admission.num_finished(), 1u) << "only the request counts";
    EXPECT_FALSE(desk.Next().has_value()) << "a replay is not replayed";
    desk.Send(1);
    EXPECT_EQ(desk.Ends().size(), kind == PodReport::Kind::kSuspect ? 1u : 0u)
        << "a prompt is kept out that killed verifiers in its replay";
  }
}

TEST(AdmissionTest, AReplayRunsOnlyWhereNothingElseDoes) {
  Desk desk({OpenPod(0)}, Audited());
  RunOne(&desk);
  const PodView fits = desk.pods[0];
  desk.pods[0].room.empty = false;
  EXPECT_FALSE(desk.Next().has_value()) << "something runs there";
  desk.pods[0] = fits;
  desk.pods[0].open = false;
  EXPECT_FALSE(desk.Next().has_value()) << "the pod is not open";
  desk.pods[0] = fits;
  desk.pods[0].draining = true;
  EXPECT_FALSE(desk.Next().has_value()) << "the pod was told to stop";
  desk.pods[0] = fits;
  desk.pods[0].numerics_id = "other";
  EXPECT_FALSE(desk.Next().has_value()) << "the pod would decode other tokens";
  desk.pods[0] = fits;
  EXPECT_FALSE(desk.admission.Next(desk.View(), {}, desk.now).has_value());
  EXPECT_TRUE(desk.Next().has_value());
}

TEST(AdmissionTest, NoReplayBeginsWhileARequestWaits) {
  Desk desk({OpenPod(0), FullPod(1, "other")}, Audited());
  RunOne(&desk);
  const CallId call = desk.Send(2);
  std::unique_ptr<Sequence> stream = desk.admission.TakeBack(call);
  Decode(stream.get(), 1, "other");
  desk.admission.Return(std::move(stream), desk.now);
  EXPECT_FALSE(desk.Next().has_value()) << "a stream waits, although for another pod";
  EXPECT_NE(desk.admission.TakeBack(call), nullptr);
  EXPECT_TRUE(desk.Next().has_value());
}

TEST(AdmissionTest, EachReplayGoesToAPodOfItsNumerics) {
  Desk desk({OpenPod(0, 4, "other")}, Audited());
  RunOne(&desk, GreedyRequest(Prompt(1), 20), kNumerics);
  const CallId second = RunOne(&desk, GreedyRequest(Prompt(2), 20), "other");
  const auto replay = desk.Next();
  ASSERT_TRUE(replay.has_value());
  EXPECT_EQ(replay->sequence->call, second) << "the first waits for a pod of its numerics";
  EXPECT_FALSE(desk.Next().has_value());
  desk.pods[0].numerics_id = kNumerics;
  EXPECT_TRUE(desk.Next().has_value());
}

TEST(AdmissionTest, OnlyWhatMustBeTheSameAgainIsReplayed) {
  const auto is_replayed = [](const GenerationRequest& request) {
    Desk desk({OpenPod(0)}, Audited());
    RunOne(&desk, request);
    return desk.Next().has_value();
  };
  const GenerationRequest greedy = GreedyRequest(Prompt(1), 20);
  EXPECT_TRUE(is_replayed(greedy));
  GenerationRequest reproducible = Sampled(greedy);
  EXPECT_FALSE(is_replayed(reproducible)) << "it draws other tokens the next time";
  reproducible.open.set_reproducible(true);
  EXPECT_TRUE(is_replayed(reproducible));
  GenerationRequest lenient = greedy;
  lenient.open.set_lenience(0.5);
  EXPECT_FALSE(is_replayed(lenient));
}

TEST(AdmissionTest, WhatFailedOrHasNoOutputOrHasMixedNumericsIsNotReplayed) {
  Desk desk({OpenPod(0)}, Audited());
  RunOne(&desk, GreedyRequest(Prompt(1), 20), kNumerics, absl::InternalError("failed"));
  EXPECT_FALSE(desk.Next().has_value());

  const CallId empty = desk.Send(1);
  desk.Place();
  desk.Finish(empty);
  desk.pods[0].room.empty = true;
  EXPECT_FALSE(desk.Next().has_value());

  const CallId mixed = desk.Send(1);
  desk.Place();
  Decode(desk.running[mixed].get(), 1, "other");
  Decode(desk.running[mixed].get(), 1, kNumerics);
  desk.Finish(mixed);
  desk.pods[0].room.empty = true;
  EXPECT_FALSE(desk.Next().has_value());
}

TEST(AdmissionTest, WithoutAnAuditNothingIsReplayed) {
  Desk desk({OpenPod(0)});
  RunOne(&desk);
  EXPECT_FALSE(desk.Next().has_value());
}

TEST(AdmissionTest, AReplayThatLeftItsSlotGoesFirst) {
  Desk desk({OpenPod(0)}, Audited());
  const CallId first = RunOne(&desk, 1);
  auto replay = desk.Next();
  ASSERT_TRUE(replay.has_value());
  const CallId second = RunOne(&desk, 2);
  desk.admission.Check(desk.View(), desk.now);
  desk.admission.TakeReport({PodReport::Kind::kPreempted, std::move(replay->sequence)}, desk.now);
  EXPECT_EQ(desk.admission.num_waiting(), 0u);
  std::vector<CallId> order;
  while (auto next = desk.Next()) order.push_back(next->sequence->call);
  EXPECT_EQ(order, (std::vector<CallId>{first, second}));
}

TEST(AdmissionTest, ADrainForgetsReplays) {
  Desk desk({OpenPod(0)}, Audited());
  RunOne(&desk);
  auto left = desk.Next();
  ASSERT_TRUE(left.has_value());
  RunOne(&desk);
  const CallId runs = desk.Send(3);
  desk.Place();
  Decode(desk.running[runs].get());
  desk.admission.Drain();
  desk.pods[0].room.empty = true;
  EXPECT_FALSE(desk.Next().has_value());
  desk.admission.Return(std::move(left->sequence), desk.now);
  EXPECT_FALSE(desk.Next().has_value()) << "one that leaves its slot does not come back";
  desk.Finish(runs);
  EXPECT_FALSE(desk.Next().has_value()) << "nor does one that ends now";
}

TEST(AdmissionTest, AFullReplayQueueDropsItsOldest) {
  Desk desk({OpenPod(0)}, Audited());
  std::vector<CallId> newest;
  for (size_t i = 0; i < ReplayQueue::kMaxReplays + 5; ++i) {
    const CallId call = desk.Send(1);
    std::unique_ptr<Sequence> sequence = desk.admission.TakeBack(call);
    Decode(sequence.get());
    desk.admission.TakeReport({PodReport::Kind::kFinished, std::move(sequence)}, desk.now);
    if (i >= 5) newest.push_back(call);
  }
  std::vector<CallId> replayed;
  while (auto next = desk.Next()) replayed.push_back(next->sequence->call);
  EXPECT_EQ(replayed, newest);
}

TEST(AdmissionTest, SampledRequestsOfTheAuditAskTheVerifierForStatistics) {
  const auto is_marked = [](GenerationRequest request, const EngineOptions& options) {
    Desk desk({OpenPod(0)}, options);
    const CallId call = desk.Send(std::move(request));
    desk.Place();
    return desk.running[call]->request.open.audit();
  };
  const GenerationRequest greedy = GreedyRequest(Prompt(1), 20);
  EXPECT_TRUE(is_marked(Sampled(greedy), Audited()));
  EXPECT_FALSE(is_marked(Sampled(greedy), EngineOptions()));
  EXPECT_FALSE(is_marked(greedy, Audited()));
  GenerationRequest seeded = Sampled(greedy);
  seeded.seed_given = true;
  EXPECT_FALSE(is_marked(seeded, Audited())) << "its draws may repeat another request's";
  GenerationRequest lenient = Sampled(greedy);
  lenient.open.set_lenience(0.5);
  EXPECT_FALSE(is_marked(lenient, Audited()));
}

}  // namespace
}  // namespace tandem::admission_test
