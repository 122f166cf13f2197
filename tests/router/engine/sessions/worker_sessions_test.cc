// Sessions, mostly seen through the engine.
#include "services/router/engine/sessions/worker_sessions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "tests/router/engine_driver.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/router/toy_workers.h"

namespace tandem::worker_sessions_test {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Says;

// Lets time pass until `seconds` from now.
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
  return testing::Sampled(driver.Request({1, 2, 3}, 30));
}

TEST(WorkerSessionsTest, BothAttachAndShareMemoryOnOneHost) {
  EngineDriver driver;
  driver.Start();
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
  EXPECT_TRUE(Workers(driver).ready(kDrafterPeer));
  EXPECT_TRUE(Workers(driver).drafters_settled());
  EXPECT_EQ(Workers(driver).ring(kDrafterPeer).transport(), v1::RING_TRANSPORT_SHM);
  EXPECT_EQ(driver.verifier.num_entries, 8u);
}

TEST(WorkerSessionsTest, RequestsAreServedWithoutADrafter) {
  EngineOptions options;
  options.workers.num_drafters = 0;
  EngineDriver driver(options);
  driver.Start();
  EXPECT_TRUE(Workers(driver).drafters_settled());
  const CallResult result = driver.Generate(Sampled(driver));
  EXPECT_EQ(result.completion->speculation().num_plain_rounds(), 30);
  EXPECT_EQ(driver.sessions.count(Worker::kDrafter), 0u);
}

// Two draft models, whose replies a test makes up.
class TwoDraftersTest : public ::testing::Test {
 protected:
  TwoDraftersTest() {
    options_.num_drafters = 2;
    workers_.emplace(options_, &tokenizer_, &commands_, &counts_);
    workers_->Start(1);
    for (const EngineCommand& command : commands_) {
      if (const auto* open = std::get_if<OpenSession>(&command)) {
        sessions_[open->peer] = open->session;
      } else if (const auto* draft = std::get_if<SendToDrafter>(&command)) {
        numbers_[draft->session] = draft->command.attach().draft_model_number();
      }
    }
    commands_.clear();
  }

  v1::AttachReply Info(const std::string& model) const {
    v1::AttachReply info;
    info.set_protocol_version(kProtocolVersion);
    info.set_model(model);
    info.set_numerics_id("toy");
    info.set_vocabulary_size(64);
    info.set_vocabulary_fingerprint(tokenizer_.FingerprintBytes());
    info.set_max_context_tokens(64);
    info.set_max_slots(4);
    info.set_boot_id("host");
    info.add_transports(v1::RING_TRANSPORT_INLINE);
    return info;
  }
  void AttachDrafter(PeerId peer) {
    v1::DraftReply reply;
    *reply.mutable_attach() = Info(PeerName(peer));
    workers_->OnDraftReply(sessions_[peer], reply, 1);
  }
  void AttachVerifier() {
    v1::VerifierReply reply;
    *reply.mutable_attach() = Info("target");
    workers_->OnVerifierReply(sessions_[kVerifierPeer], reply, 1);
  }
  // Answers the commands about rings that were sent, the newest first.
  void AnswerAboutRings() {
    while (!commands_.empty()) {
      const EngineCommand command = std::move(commands_.back());
      commands_.pop_back();
      if (const auto* verifier = std::get_if<SendToVerifier>(&command)) {
        v1::VerifierReply reply;
        reply.set_id(verifier->command.id());
        if (verifier->command.has_create_ring()) {
          const uint32_t number = verifier->command.create_ring().draft_model_number();
          reply.mutable_create_ring()->set_ring_epoch(100 + number);
        } else {
          reply.mutable_confirm_ring();
        }
        workers_->OnVerifierReply(verifier->session, reply, 1);
      } else if (const auto* draft = std::get_if<SendToDrafter>(&command)) {
        const uint64_t epoch = draft->command.open_ring().ring_epoch();
        EXPECT_EQ(epoch, 100 + numbers_[draft->session]) << "the ring of this drafter";
        v1::DraftReply reply;
        reply.set_id(draft->command.id());
        reply.mutable_open_ring();
        workers_->OnDraftReply(draft->session, reply, 1);
      }
    }
  }
  bool RingIsOpen(PeerId peer) const { return workers_->ring(peer).open(); }

  static constexpr PeerId kSecond = kDrafterPeer + 1;
  testing::ToyTokenizer tokenizer_ = testing::ToyTokenizer::OfSize(64);
  WorkerSessionsOptions options_;
  EngineCommands commands_;
  Counts counts_;
  std::optional<WorkerSessions> workers_;
  std::map<PeerId, SessionId> sessions_;
  std::map<SessionId, uint32_t> numbers_;  // by session of a drafter
};

TEST_F(TwoDraftersTest, EachHasASessionANumberAndARingOfItsOwn) {
  EXPECT_EQ(sessions_.size(), 3u);
  EXPECT_EQ(numbers_[sessions_[kDrafterPeer]], 0u);
  EXPECT_EQ(numbers_[sessions_[kSecond]], 1u);
  AttachDrafter(kSecond);
  AttachVerifier();
  EXPECT_FALSE(workers_->drafters_settled()) << "the first one may still come";
  AttachDrafter(kDrafterPeer);
  EXPECT_FALSE(workers_->drafters_settled()) << "there is no ring yet";
  AnswerAboutRings();
  EXPECT_TRUE(RingIsOpen(kDrafterPeer) && RingIsOpen(kSecond));
  EXPECT_TRUE(workers_->drafters_settled());
  EXPECT_EQ(workers_->drafter_name(kDrafterPeer), "draft");
  EXPECT_EQ(workers_->drafter_name(kSecond), "draft-2");
}

TEST_F(TwoDraftersTest, TheLossOfOneLeavesTheOther) {
  AttachVerifier();
  AttachDrafter(kDrafterPeer);
  AttachDrafter(kSecond);
  AnswerAboutRings();
  (void)workers_->TakeEvents();
  workers_->OnLost(sessions_[kDrafterPeer], "died", 2);
  EXPECT_FALSE(workers_->ready(kDrafterPeer) || RingIsOpen(kDrafterPeer));
  EXPECT_TRUE(workers_->ready(kSecond) && RingIsOpen(kSecond));
  const std::vector<SessionEvent> events = workers_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].peer, kDrafterPeer);
  EXPECT_NE(workers_->drafter_problem(kDrafterPeer), "");
  EXPECT_EQ(workers_->drafter_problem(kSecond), "");
}

TEST_F(TwoDraftersTest, TheLossOfTheVerifierClosesBothRings) {
  AttachVerifier();
  AttachDrafter(kDrafterPeer);
  AttachDrafter(kSecond);
  AnswerAboutRings();
  workers_->OnLost(sessions_[kVerifierPeer], "died", 2);
  EXPECT_FALSE(RingIsOpen(kDrafterPeer) || RingIsOpen(kSecond));
  EXPECT_TRUE(workers_->ready(kDrafterPeer) && workers_->ready(kSecond));
}

class LoadedDrafterTest : public TwoDraftersTest {
 protected:
  LoadedDrafterTest() {
    options_.num_places = 4;
    commands_.clear();
    workers_.emplace(options_, &tokenizer_, &commands_, &counts_);
    workers_->Start(1);
    NoteSessions();
    AttachVerifier();
    AttachDrafter(kDrafterPeer);
    AttachDrafter(kSecond);
    AnswerAboutRings();
    (void)workers_->TakeEvents();
  }
  // Returns the OpenSession and the Attach that were sent.
  std::pair<OpenSession, v1::Attach> NoteSessions() {
    std::pair<OpenSession, v1::Attach> last;
    for (const EngineCommand& command : commands_) {
      if (const auto* open = std::get_if<OpenSession>(&command)) {
        sessions_[open->peer] = open->session;
        last.first = *open;
      } else if (const auto* draft = std::get_if<SendToDrafter>(&command)) {
        numbers_[draft->session] = draft->command.attach().draft_model_number();
        last.second = draft->command.attach();
      }
    }
    commands_.clear();
    return last;
  }
  static constexpr PeerId kThird = kDrafterPeer + 2;
};

TEST_F(LoadedDrafterTest, TheFirstDraftWorkerLoadsIt) {
  EXPECT_EQ(workers_->num_peers(), 5u);
  EXPECT_TRUE(workers_->drafters_settled()) << "an absent model is not waited for";
  workers_->TakeUp(kThird, "new", 2);
  const auto [open, attach] = NoteSessions();
  EXPECT_EQ(open.peer, kThird);
  EXPECT_EQ(open.draft_worker, 0u);
  EXPECT_EQ(attach.model(), "new");
  EXPECT_EQ(attach.draft_model_number(), 2u);
  EXPECT_TRUE(workers_->attaching(kThird));
  // Loading may take long.
  workers_->Tick(2 + options_.attach_timeout_seconds + 1);
  EXPECT_TRUE(workers_->attaching(kThird));
  AttachDrafter(kThird);
  AnswerAboutRings();
  EXPECT_TRUE(workers_->ready(kThird) && RingIsOpen(kThird));
}

TEST_F(LoadedDrafterTest, AWorkerThatDoesNotLoadItIsAskedAgain) {
  workers_->TakeUp(kThird, "new", 2);
  NoteSessions();
  workers_->Tick(2 + options_.load_timeout_seconds);
  EXPECT_FALSE(workers_->attaching(kThird));
  EXPECT_EQ(workers_->drafter_problem(kThird), "draft-3: cannot attach: no answer within 600 s");
  workers_->Tick(2 + options_.load_timeout_seconds + 1);
  EXPECT_EQ(NoteSessions().second.model(), "new");
}

TEST_F(LoadedDrafterTest, OneThatIsLetGoIsForgotten) {
  workers_->TakeUp(kThird, "new", 2);
  NoteSessions();
  AttachDrafter(kThird);
  AnswerAboutRings();
  (void)workers_->TakeEvents();
  workers_->LetGo(kThird);
  ASSERT_EQ(commands_.size(), 2u);
  EXPECT_EQ(std::get<CloseSession>(commands_[0]).session, sessions_[kThird]);
  EXPECT_EQ(std::get<SendToVerifier>(commands_[1]).command.drop_ring().draft_model_number(), 2u);
  const std::vector<SessionEvent> events = workers_->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].let_go);
  EXPECT_FALSE(events[0].ready || RingIsOpen(kThird));
  EXPECT_EQ(workers_->drafter_name(kThird), "");
  EXPECT_EQ(workers_->drafter_problem(kThird), "");
  EXPECT_TRUE(workers_->drafters_settled());
  commands_.clear();
  workers_->Tick(1000);
  for (const EngineCommand& command : commands_) {
    EXPECT_FALSE(std::holds_alternative<OpenSession>(command));
  }
  // It was no loss.
  EXPECT_EQ(counts_.session_changes[Worker::kDrafter][SessionChange::kDisconnected], 0u);
}

TEST_F(LoadedDrafterTest, ALateAnswerOfOneThatWasLetGoCountsForNothing) {
  workers_->TakeUp(kThird, "new", 2);
  NoteSessions();
  workers_->LetGo(kThird);
  EXPECT_FALSE(workers_->DrafterOf(sessions_[kThird]).has_value());
  AttachDrafter(kThird);
  EXPECT_FALSE(workers_->ready(kThird));
  EXPECT_FALSE(workers_->attaching(kThird));
}

TEST_F(LoadedDrafterTest, AModelThatCannotBeLoadedIsTriedLessAndLess) {
  workers_->TakeUp(kThird, "new", 0);
  NoteSessions();
  double now = 1;
  for (const double pause : {5, 10, 20, 40, 80, 160, 320, 320}) {
    v1::DraftReply refusal;
    refusal.mutable_error()->set_message("there is no such model");
    workers_->OnDraftReply(sessions_[kThird], refusal, now);
    EXPECT_EQ(workers_->drafter_problem_in_full(kThird),
              "draft-3: cannot load new: there is no such model");
    EXPECT_EQ(workers_->drafter_problem(kThird), "draft-3: cannot load new");
    commands_.clear();
    workers_->Tick(now + pause - 0.5);
    EXPECT_FALSE(workers_->attaching(kThird)) << pause;
    now += pause;
    commands_.clear();
    workers_->Tick(now);
    EXPECT_TRUE(workers_->attaching(kThird)) << pause;
    NoteSessions();
  }
}

TEST_F(LoadedDrafterTest, ARequiredDrafterIsOneOfTheBeginning) {
  options_.drafter_required = true;
  workers_.emplace(options_, &tokenizer_, &commands_, &counts_);
  workers_->Start(1);
  NoteSessions();
  AttachVerifier();
  workers_->TakeUp(kThird, "new", 2);
  NoteSessions();
  v1::DraftReply misfit;
  *misfit.mutable_attach() = Info("new");
  misfit.mutable_attach()->set_protocol_version(1);
  workers_->OnDraftReply(sessions_[kThird], misfit, 3);
  EXPECT_TRUE(workers_->refused(kThird));
  EXPECT_FALSE(AnyDrafterRefused(*workers_));
  for (const EngineCommand& command : commands_) {
    EXPECT_FALSE(std::holds_alternative<GiveUp>(command));
  }
}

TEST_F(TwoDraftersTest, OneThatDoesNotFitLeavesTheOther) {
  AttachVerifier();
  v1::DraftReply misfit;
  *misfit.mutable_attach() = Info("other");
  misfit.mutable_attach()->set_protocol_version(1);
  workers_->OnDraftReply(sessions_[kSecond], misfit, 1);
  EXPECT_TRUE(workers_->refused(kSecond));
  AttachDrafter(kDrafterPeer);
  AnswerAboutRings();
  EXPECT_TRUE(RingIsOpen(kDrafterPeer));
  EXPECT_TRUE(workers_->drafters_settled());
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
  EXPECT_TRUE(
      Says(driver, "verifier: session lost: the worker hangs: it gave no sign of life for 3 s"));
  EXPECT_TRUE(
      Says(driver, "draft: session lost: the worker hangs: it gave no sign of life for 3 s"));
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
  EXPECT_TRUE(Says(
      driver, "verifier: session lost: the worker hangs: it computed without progress for 3 s"));
  EXPECT_GT(driver.sessions[Worker::kVerifier], 1u);
}

TEST(WorkerSessionsTest, AWorkerThatWasTakenForHungGetsTwiceTheTime) {
  EngineDriver driver;
  driver.Start();
  driver.pong[Worker::kDrafter].set_computing(true);
  Wait(driver, 30);
  EXPECT_TRUE(
      Says(driver, "draft: session lost: the worker hangs: it computed without progress for 3 s"));
  EXPECT_TRUE(
      Says(driver, "draft: session lost: the worker hangs: it computed without progress for 12 s"));
  EXPECT_TRUE(Workers(driver).ready(kVerifierPeer));
}

TEST(WorkerSessionsTest, TheLimitIsTenUsualBatchesWhereThatIsLonger) {
  EngineOptions options;
  options.workers.num_drafters = 0;
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
  EXPECT_TRUE(Says(driver, "the worker hangs"));
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

// Runs WorkerSessions without an engine: the test gives the replies.
class SessionEventsTest : public ::testing::Test {
 protected:
  SessionEventsTest()
      : tokenizer_(testing::ToyTokenizer::OfSize(64)),
        sessions_(WorkerSessionsOptions(), &tokenizer_, &out_, &counts_) {
    testing::ToyOptions options;
    options.fingerprint = tokenizer_.FingerprintBytes();
    reply_ = testing::ToyWorker({}, options).Attached();
  }

  void AttachVerifier(SessionId session) {
    v1::VerifierReply reply;
    *reply.mutable_attach() = reply_;
    sessions_.OnVerifierReply(session, reply, 0);
  }
  void AttachDrafter(SessionId session) {
    v1::DraftReply reply;
    *reply.mutable_attach() = reply_;
    sessions_.OnDraftReply(session, reply, 0);
  }
  // Returns the events, such as "+verifier 1, -draft 2".
  std::string Events() {
    std::string text;
    for (const SessionEvent& event : sessions_.TakeEvents()) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", event.ready ? "+" : "-",
                      WorkerName(KindOf(event.peer)), " ", event.session);
    }
    return text;
  }

  testing::ToyTokenizer tokenizer_;
  EngineCommands out_;
  Counts counts_;
  WorkerSessions sessions_;
  v1::AttachReply reply_;
};

TEST_F(SessionEventsTest, EventsHaveTheOrderOfTheChanges) {
  sessions_.Start(0);
  EXPECT_EQ(Events(), "");
  AttachDrafter(2);  // the drafter waits for the verifier's vocabulary
  EXPECT_EQ(Events(), "");
  AttachVerifier(1);
  sessions_.OnLost(1, "killed", 1);
  sessions_.Tick(2);
  AttachVerifier(3);
  EXPECT_EQ(Events(), "+verifier 1, +draft 2, -verifier 1, +verifier 3");
  EXPECT_EQ(Events(), "");
  sessions_.Drop(kDrafterPeer, SessionChange::kProtocolError, "broken", 3);
  sessions_.Close();
  EXPECT_EQ(Events(), "-draft 2, -verifier 3");
}

TEST_F(SessionEventsTest, AWorkerThatWasNotReadyEndsWithoutAnEvent) {
  sessions_.Start(0);
  sessions_.OnLost(1, "connection refused", 0);
  sessions_.Drop(kVerifierPeer, SessionChange::kProtocolError, "broken", 0);
  reply_.set_protocol_version(99);
  AttachDrafter(2);
  EXPECT_TRUE(sessions_.refused(kDrafterPeer));
  sessions_.Close();
  EXPECT_EQ(Events(), "");
}

TEST_F(SessionEventsTest, AHungWorkerIsAnEvent) {
  sessions_.Start(0);
  AttachVerifier(1);
  while (sessions_.ready(kVerifierPeer)) sessions_.Tick(sessions_.NextDeadline());
  EXPECT_EQ(Events(), "+verifier 1, -verifier 1");
}

}  // namespace
}  // namespace tandem::worker_sessions_test
