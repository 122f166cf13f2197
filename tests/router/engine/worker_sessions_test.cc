// Attaching, seen through the engine.
#include "services/router/engine/worker_sessions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tests/router/engine_driver.h"

namespace tandem::worker_sessions_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Says;
using testing::ToyOptions;

// Lets time go by.
void Wait(EngineDriver& driver, double seconds) {
  const double until = driver.now + seconds;
  while (driver.Step()) {
  }
  for (double next = driver.fleet.NextDeadline(); next <= until;
       next = driver.fleet.NextDeadline()) {
    driver.now = std::max(driver.now, next);
    driver.fleet.Tick(driver.now);
    driver.Execute();
    while (driver.Step()) {
    }
  }
  driver.now = std::max(driver.now, until);
}

const WorkerSessions& Workers(const EngineDriver& driver) { return driver.engine().workers(); }

GenerationRequest Sampled(const EngineDriver& driver) {
  GenerationRequest request = driver.Request({1, 2, 3}, 30);
  request.open.mutable_sampling()->set_temperature(1);
  return request;
}

TEST(WorkerSessionsTest, BothAttachAndShareMemoryOnOneHost) {
  EngineDriver driver;
  driver.Start();
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  EXPECT_TRUE(Workers(driver).ready(kDrafterPeer));
  EXPECT_TRUE(Workers(driver).drafter_settled());
  EXPECT_EQ(Workers(driver).ring().transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_EQ(driver.verifier.num_entries, 8u);
}

TEST(WorkerSessionsTest, RowsGoInlineBetweenHosts) {
  EngineDriver driver;
  driver.drafter.options.boot_id = "another";
  driver.Start();
  EXPECT_EQ(Workers(driver).ring().transport(), v1::RING_TRANSPORT_INLINE);
  EXPECT_TRUE(Says(driver, "shm is not possible: the workers are on two machines"));
  const CallResult result = driver.Generate(Sampled(driver));
  EXPECT_GT(result.completion->speculation().num_accepted_tokens(), 0);
  EXPECT_EQ(driver.engine().counts().ring_errors, 0u);
}

TEST(WorkerSessionsTest, ATransportThatFailsIsFollowedByTheNext) {
  for (bool at_drafter : {false, true}) {
    EngineDriver driver;
    (at_drafter ? driver.drafter.refuse_ring : driver.verifier.refuse_ring) =
        v1::RING_TRANSPORT_SHM;
    driver.Start();
    EXPECT_EQ(Workers(driver).ring().transport(), v1::RING_TRANSPORT_INLINE);
    EXPECT_TRUE(Workers(driver).ring().open());
    EXPECT_TRUE(Says(driver, "shm refused"));
  }
}

// Both workers on one GPU; `apart` says what one of them has otherwise.
void StartOnGpus(EngineDriver& driver, const std::function<void(ToyOptions&)>& apart) {
  for (ToyOptions* options : {&driver.drafter.options, &driver.verifier.options}) {
    options->transports.insert(options->transports.begin(), v1::RING_TRANSPORT_CUDA_IPC);
    options->device_uuid = "GPU-1";
  }
  apart(driver.drafter.options);
  driver.Start();
}

TEST(WorkerSessionsTest, DeviceMemoryIsSharedOnOneGpuAndInOnePidNamespace) {
  EngineDriver together;
  StartOnGpus(together, [](ToyOptions&) {});
  EXPECT_EQ(Workers(together).ring().transport(), v1::RING_TRANSPORT_CUDA_IPC);
  EXPECT_FALSE(Says(together, "is not possible"));

  EngineDriver two_gpus;
  StartOnGpus(two_gpus, [](ToyOptions& options) { options.device_uuid = "GPU-2"; });
  EXPECT_EQ(Workers(two_gpus).ring().transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_TRUE(Says(two_gpus,
                   "log-prob ring: cuda_ipc is not possible: the workers are on two GPUs, GPU-2 "
                   "and GPU-1"));

  EngineDriver two_namespaces;
  StartOnGpus(two_namespaces, [](ToyOptions& options) { options.pid_namespace = "pid:[2]"; });
  EXPECT_EQ(Workers(two_namespaces).ring().transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_TRUE(Says(two_namespaces, "cuda_ipc is not possible: the workers are in two PID"));

  EngineDriver refused;
  refused.drafter.refuse_ring = v1::RING_TRANSPORT_CUDA_IPC;
  StartOnGpus(refused, [](ToyOptions&) {});
  EXPECT_EQ(Workers(refused).ring().transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_TRUE(Says(refused, "cuda_ipc refused"));
}

TEST(WorkerSessionsTest, TheTransportCanBeChosen) {
  EngineOptions options;
  options.workers.transport = TransportChoice::kInline;
  EngineDriver driver(options);
  driver.Start();
  EXPECT_EQ(Workers(driver).ring().transport(), v1::RING_TRANSPORT_INLINE);
}

TEST(WorkerSessionsTest, WithoutARingOnlySampledRequestsAreDecodedPlainly) {
  EngineOptions options;
  options.workers.transport = TransportChoice::kShm;
  EngineDriver driver(options);
  driver.drafter.options.boot_id = "another";
  driver.Start();
  EXPECT_FALSE(Workers(driver).ring().open());
  EXPECT_TRUE(Workers(driver).drafter_settled());
  EXPECT_EQ(driver.Generate(Sampled(driver)).completion->speculation().num_drafts(), 0);
  EXPECT_GT(driver.Generate(driver.Request({1, 2}, 20)).completion->speculation().num_drafts(), 0);
}

TEST(WorkerSessionsTest, NoDrafterIsNoHindrance) {
  EngineOptions options;
  options.workers.has_drafter = false;
  EngineDriver driver(options);
  driver.Start();
  EXPECT_TRUE(Workers(driver).drafter_settled());
  const CallResult result = driver.Generate(Sampled(driver));
  EXPECT_EQ(result.completion->speculation().num_plain_rounds(), 30);
  EXPECT_EQ(driver.sessions.count(Worker::kDrafter), 0u);
}

TEST(WorkerSessionsTest, AVocabularyOfAnotherSizeIsNamed) {
  EngineDriver driver;
  driver.drafter.options.vocabulary_size = 32;
  driver.drafter.options.fingerprint = "other";
  driver.drafter.options.entries.resize(32);
  driver.drafter.options.entries[20] = "x\n";
  driver.Start();
  EXPECT_FALSE(Workers(driver).ready(kDrafterPeer));
  EXPECT_TRUE(Workers(driver).drafter_settled());
  EXPECT_TRUE(Says(driver,
                   "draft: vocabulary has 32 entries, the target's has 64 (models must share a "
                   "tokenizer; check --draft); first difference: entry 20 is \"x\\n\", the "
                   "target's is \"u\""));
  EXPECT_EQ(driver.Generate(driver.Request({1}, 5)).ids.size(), 5u);
}

TEST(WorkerSessionsTest, AVocabularyOfTheSameSizeIsComparedEntryByEntry) {
  EngineDriver driver;
  driver.drafter.options.fingerprint = "other";
  std::swap(driver.drafter.options.entries[50], driver.drafter.options.entries[51]);
  driver.Start();
  EXPECT_FALSE(Workers(driver).ready(kDrafterPeer));
  EXPECT_TRUE(Says(driver, "draft: vocabulary entry 50 is \"<51>\", the target's is \"<50>\""));
}

TEST(WorkerSessionsTest, ADrafterThatIsRequiredAndDoesNotFitIsFatal) {
  EngineOptions options;
  options.workers.drafter_required = true;
  EngineDriver driver(options);
  driver.drafter.options.fingerprint = "other";
  driver.Start();
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(driver.gave_up->code(), absl::StatusCode::kFailedPrecondition);
}

TEST(WorkerSessionsTest, AVerifierOfAnotherTokenizerIsFatal) {
  EngineDriver driver;
  driver.verifier.options.fingerprint = "other";
  driver.Start();
  ASSERT_TRUE(driver.gave_up.has_value());
  EXPECT_EQ(driver.gave_up->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(driver.gave_up->message()).find("--target"), std::string::npos);
}

TEST(WorkerSessionsTest, AnotherProtocolVersionIsRefused) {
  EngineDriver driver;
  driver.drafter.options.protocol_version = 99;
  driver.Start();
  EXPECT_FALSE(Workers(driver).ready(kDrafterPeer));
  EXPECT_TRUE(Says(driver, "protocol version 99"));
}

TEST(WorkerSessionsTest, AVerifierThatComesBackSmallerIsRefused) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.options.max_context_tokens = 100;
  const CallId call = driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Says(driver, "less than before"));
}

TEST(WorkerSessionsTest, AVerifierThatComesBackWithAnotherModelIsRefused) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.name = "another";
  const CallId call = driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Says(driver, "came back with model another"));
}

TEST(WorkerSessionsTest, AVerifierThatComesBackWithOtherWeightsIsRefused) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.options.model_fingerprint = "of another training";
  const CallId call = driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_EQ(driver.calls[call].status->code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Says(driver, "came back with other weights"));
}

TEST(WorkerSessionsTest, WeightsAreKeptWhileAVerifierDoesNotSay) {
  EngineDriver driver;
  driver.Start();
  for (const char* weights : {"", "of another training"}) {
    driver.Kill(Worker::kVerifier);
    driver.Revive(Worker::kVerifier);
    driver.verifier.options.model_fingerprint = weights;
    EXPECT_FALSE(Says(driver, "came back with other weights"));
    driver.Send(driver.Request({1, 2}, 10));
    ASSERT_TRUE(driver.Run());
  }
  EXPECT_TRUE(Says(driver, "came back with other weights"));
}

TEST(WorkerSessionsTest, AVerifierThatSaysNothingOfItsWeightsIsTaken) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.options.model_fingerprint.clear();
  const CallId call = driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_TRUE(driver.calls[call].status->ok()) << *driver.calls[call].status;
}

TEST(WorkerSessionsTest, OtherNumericsAreSaid) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.options.numerics_id = "toy2";
  driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_TRUE(Says(driver, "other numerics (toy2, was toy)"));
}

TEST(WorkerSessionsTest, AWorkerThatIsNotThereYetIsTriedAgainAndSaidOnce) {
  EngineDriver driver;
  driver.verifier_alive = false;
  driver.Begin();
  driver.Execute();
  const double start = driver.now;
  int attempts = 0;
  while (driver.now < start + 10) {
    driver.now = driver.fleet.NextDeadline();
    driver.fleet.Tick(driver.now);
    driver.Execute();
    while (driver.Step()) {
    }
    ++attempts;
  }
  EXPECT_GE(attempts, 10);
  EXPECT_LE(attempts, 40);  // with a ping to the drafter every half second
  EXPECT_EQ(std::count_if(driver.log.begin(), driver.log.end(),
                          [](const std::string& line) {
                            return line.find("verifier: cannot attach") != std::string::npos;
                          }),
            1);
  driver.Revive(Worker::kVerifier);
  EXPECT_EQ(driver.Generate(driver.Request({1}, 5)).ids.size(), 5u);
}

TEST(WorkerSessionsTest, AWorkerThatAcceptsAndSaysNothingIsDropped) {
  EngineDriver driver;
  driver.Begin();
  driver.Execute();
  driver.to_drafter.clear();
  while (driver.Step()) {
  }
  Wait(driver, 10);
  EXPECT_TRUE(Says(driver, "draft: cannot attach: no answer within 10 s"));
}

TEST(WorkerSessionsTest, AWorkerThatAnswersNoPingIsDroppedAfterThreeSeconds) {
  EngineDriver driver;
  driver.Start();
  driver.answers_pings = false;
  Wait(driver, 2.9);
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  driver.answers_pings = true;  // one answer is enough
  Wait(driver, 0.6);
  driver.answers_pings = false;
  Wait(driver, 2.4);
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  Wait(driver, 1.2);
  EXPECT_TRUE(Says(driver, "verifier: session lost: it hangs: no sign of life for 3 s"));
  EXPECT_TRUE(Says(driver, "draft: session lost: it hangs: no sign of life for 3 s"));
  driver.answers_pings = true;
  Wait(driver, 1);
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  EXPECT_TRUE(Workers(driver).ready(kDrafterPeer));
}

TEST(WorkerSessionsTest, ABusyWorkerIsNotAHungOne) {
  EngineDriver driver;
  driver.Start();
  driver.pong[Worker::kVerifier].set_computing(true);
  for (int layer = 0; layer < 20; ++layer) {
    driver.pong[Worker::kVerifier].set_progress(layer);
    Wait(driver, 2);
  }
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  EXPECT_EQ(driver.sessions[Worker::kVerifier], 1u);
  Wait(driver, 4);  // and now it stands still
  EXPECT_TRUE(Says(driver, "verifier: session lost: it hangs: computes without progress for 3 s"));
  EXPECT_GT(driver.sessions[Worker::kVerifier], 1u);
}

TEST(WorkerSessionsTest, AWorkerThatWasTakenForHungGetsTwiceTheTime) {
  EngineDriver driver;
  driver.Start();
  driver.pong[Worker::kDrafter].set_computing(true);
  Wait(driver, 30);
  EXPECT_TRUE(Says(driver, "draft: session lost: it hangs: computes without progress for 3 s"));
  EXPECT_TRUE(Says(driver, "draft: session lost: it hangs: computes without progress for 12 s"));
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
}

TEST(WorkerSessionsTest, TheLimitIsTenUsualBatchesWhereThatIsLonger) {
  EngineOptions options;
  options.workers.has_drafter = false;
  EngineDriver driver(options);
  driver.verifier.compute_seconds = 2;
  driver.Start();
  driver.Generate(driver.Request({1, 2}, 10));
  driver.answers_pings = false;
  Wait(driver, 19);
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  Wait(driver, 2);
  EXPECT_TRUE(Says(driver, "no sign of life for 20 s"));
}

TEST(WorkerSessionsTest, TimeThatTheRouterSleptIsNotHeldAgainstTheWorkers) {
  EngineDriver driver;
  driver.Start();
  driver.answers_pings = false;
  driver.now += 60;
  driver.fleet.Tick(driver.now);
  driver.Execute();
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  Wait(driver, 4);
  EXPECT_TRUE(Says(driver, "it hangs"));
}

TEST(WorkerSessionsTest, EverySessionHasATokenOfItsOwnAndPingsRenewIt) {
  EngineOptions options;
  options.workers.first_session_token = 1000;
  EngineDriver driver(options);
  std::map<Worker, uint64_t> attached;
  driver.Begin();
  EngineCommands commands = driver.fleet.TakeCommands();
  for (const EngineCommand& command : commands) {
    if (const auto* send = std::get_if<SendToVerifier>(&command)) {
      attached[Worker::kVerifier] = send->command.attach().session_token();
    } else if (const auto* to_drafter = std::get_if<SendToDrafter>(&command)) {
      attached[Worker::kDrafter] = to_drafter->command.attach().session_token();
    }
  }
  EXPECT_EQ(attached[Worker::kVerifier], 1001u);
  EXPECT_EQ(attached[Worker::kDrafter], 1002u);
  v1::VerifierReply reply;
  *reply.mutable_attach() = driver.verifier.Attached();
  driver.fleet.OnVerifierReply(1, reply, driver.now);
  commands = driver.fleet.TakeCommands();
  const auto ping = std::find_if(commands.begin(), commands.end(), [](const auto& command) {
    return std::holds_alternative<SendPing>(command);
  });
  ASSERT_NE(ping, commands.end());
  EXPECT_EQ(std::get<SendPing>(*ping).token, 1001u);
}

}  // namespace
}  // namespace tandem::worker_sessions_test
