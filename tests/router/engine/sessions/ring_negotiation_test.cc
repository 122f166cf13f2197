#include "services/router/engine/sessions/ring_negotiation.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/router/engine_driver.h"

namespace tandem::ring_negotiation_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Says;
using testing::ToyOptions;

const RingCredits& Ring(const EngineDriver& driver) {
  return driver.engine().workers().ring(kDrafterPeer);
}

GenerationRequest Sampled(const EngineDriver& driver) {
  return testing::Sampled(driver.Request({1, 2, 3}, 30));
}

TEST(RingNegotiationTest, RowsGoInlineBetweenHosts) {
  EngineDriver driver;
  driver.drafter.options.boot_id = "another";
  driver.Start();
  EXPECT_EQ(Ring(driver).transport(), v1::RING_TRANSPORT_INLINE);
  EXPECT_TRUE(Says(driver, "shm is not possible: the workers are on two machines"));
  const CallResult result = driver.Generate(Sampled(driver));
  EXPECT_GT(result.completion->speculation().num_accepted_tokens(), 0);
  EXPECT_EQ(driver.engine().counts().ring_errors, 0u);
}

TEST(RingNegotiationTest, ATransportThatFailsIsFollowedByTheNext) {
  for (bool at_drafter : {false, true}) {
    EngineDriver driver;
    (at_drafter ? driver.drafter.refuse_ring : driver.verifier.refuse_ring) =
        v1::RING_TRANSPORT_SHM;
    driver.Start();
    EXPECT_EQ(Ring(driver).transport(), v1::RING_TRANSPORT_INLINE);
    EXPECT_TRUE(Ring(driver).open());
    EXPECT_TRUE(Says(driver, "shm refused"));
  }
}

// Starts both workers on one GPU. `apart` changes the drafter's options.
void StartOnGpus(EngineDriver& driver, const std::function<void(ToyOptions&)>& apart) {
  for (ToyOptions* options : {&driver.drafter.options, &driver.verifier.options}) {
    options->transports.insert(options->transports.begin(), v1::RING_TRANSPORT_CUDA_IPC);
    options->device_uuid = "GPU-1";
  }
  apart(driver.drafter.options);
  driver.Start();
}

TEST(RingNegotiationTest, DeviceMemoryIsSharedOnOneGpuAndInOnePidNamespace) {
  EngineDriver together;
  StartOnGpus(together, [](ToyOptions&) {});
  EXPECT_EQ(Ring(together).transport(), v1::RING_TRANSPORT_CUDA_IPC);
  EXPECT_FALSE(Says(together, "is not possible"));

  EngineDriver two_gpus;
  StartOnGpus(two_gpus, [](ToyOptions& options) { options.device_uuid = "GPU-2"; });
  EXPECT_EQ(Ring(two_gpus).transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_TRUE(Says(two_gpus,
                   "log-prob ring: cuda_ipc is not possible: the workers are on two GPUs, GPU-2 "
                   "and GPU-1"));

  EngineDriver two_namespaces;
  StartOnGpus(two_namespaces, [](ToyOptions& options) { options.pid_namespace = "pid:[2]"; });
  EXPECT_EQ(Ring(two_namespaces).transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_TRUE(Says(two_namespaces, "cuda_ipc is not possible: the workers are in two PID"));

  EngineDriver refused;
  refused.drafter.refuse_ring = v1::RING_TRANSPORT_CUDA_IPC;
  StartOnGpus(refused, [](ToyOptions&) {});
  EXPECT_EQ(Ring(refused).transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_TRUE(Says(refused, "cuda_ipc refused"));
}

TEST(RingNegotiationTest, TheTransportCanBeChosen) {
  EngineOptions options;
  options.workers.transport = TransportChoice::kInline;
  EngineDriver driver(options);
  driver.Start();
  EXPECT_EQ(Ring(driver).transport(), v1::RING_TRANSPORT_INLINE);
}

TEST(RingNegotiationTest, WithoutARingOnlySampledRequestsAreDecodedPlainly) {
  EngineOptions options;
  options.workers.transport = TransportChoice::kShm;
  EngineDriver driver(options);
  driver.drafter.options.boot_id = "another";
  driver.Start();
  EXPECT_FALSE(Ring(driver).open());
  EXPECT_TRUE(driver.engine().workers().drafters_settled());
  EXPECT_EQ(driver.Generate(Sampled(driver)).completion->speculation().num_drafts(), 0);
  EXPECT_GT(driver.Generate(driver.Request({1, 2}, 20)).completion->speculation().num_drafts(), 0);
}

v1::AttachReply InlineWorker() {
  v1::AttachReply reply;
  reply.add_transports(v1::RING_TRANSPORT_INLINE);
  reply.set_max_slots(3);
  reply.set_vocabulary_size(64);
  return reply;
}

TEST(RingNegotiationTest, OnlyTheCurrentStepIsUnderWay) {
  EngineCommands out;
  Counts counts;
  RingNegotiation ring({TransportChoice::kAuto, 8, 4}, &out, &counts, NobodyObserves());
  EXPECT_FALSE(ring.IsUnderWay(0));
  const auto create = ring.Start(InlineWorker(), InlineWorker(), 0);
  ASSERT_TRUE(create.has_value());
  EXPECT_EQ(create->entries(), 3u);  // the smaller number of slots
  EXPECT_EQ(create->rows_per_entry(), 4u);
  EXPECT_EQ(create->vocabulary_size(), 64u);
  ring.Sent(5);
  EXPECT_TRUE(ring.IsUnderWay(5));
  EXPECT_FALSE(ring.IsUnderWay(4));
  ring.OnCreated(v1::CreateRingReply());
  ring.Sent(6);
  EXPECT_FALSE(ring.IsUnderWay(5));
  ring.OnOpened(v1::OpenRingReply());
  ring.Sent(7);
  ring.OnConfirmed(1);
  EXPECT_FALSE(ring.IsUnderWay(7));
  EXPECT_TRUE(ring.credits().open());
}

TEST(RingNegotiationTest, ARefusalOfTheLastTransportIsCountedAndLogged) {
  EngineCommands out;
  Counts counts;
  RingNegotiation ring({TransportChoice::kAuto, 8, 4}, &out, &counts, NobodyObserves());
  ring.Start(InlineWorker(), InlineWorker(), 0);
  v1::WorkerError error;
  error.set_message("no memory");
  EXPECT_FALSE(ring.OnRefused(Worker::kVerifier, error).has_value());
  EXPECT_EQ(counts.ring_refusals[Worker::kVerifier][v1::RING_TRANSPORT_INLINE], 1u);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(std::get<LogLine>(out[0]).text, "log-prob ring: inline refused: verifier: no memory");
  EXPECT_EQ(std::get<LogLine>(out[0]).summary, "log-prob ring: inline refused");
  EXPECT_EQ(std::get<LogLine>(out[1]).text,
            "log-prob ring: none (no transport is left): only greedy and reproducible requests are "
            "drafted");
}

}  // namespace
}  // namespace tandem::ring_negotiation_test
