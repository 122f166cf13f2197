#include "services/router/engine/sessions/attach_check.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "common/rpc/protocol.h"
#include "tests/router/engine_driver.h"
#include "tests/router/toy_tokenizer.h"

namespace tandem::attach_check_test {
namespace {

using testing::EngineDriver;
using testing::Says;
using testing::ToyTokenizer;

constexpr uint32_t kMaxSlots = 4;

class VerifierCheckTest : public ::testing::Test {
 protected:
  VerifierCheckTest() : tokenizer_(ToyTokenizer::OfSize(32)) {}

  v1::AttachReply Reply() const {
    v1::AttachReply reply;
    reply.set_protocol_version(kProtocolVersion);
    reply.set_model("toy");
    reply.set_model_fingerprint("weights");
    reply.set_vocabulary_size(32);
    reply.set_vocabulary_fingerprint(tokenizer_.FingerprintBytes());
    reply.set_max_context_tokens(100);
    reply.set_max_slots(8);
    return reply;
  }
  std::string Why(const v1::AttachReply& reply, const KnownReplies& known) const {
    return std::string(CheckVerifier(reply, tokenizer_, known, kMaxSlots).message());
  }

  ToyTokenizer tokenizer_;
};

bool StartsWith(std::string_view text, std::string_view start) { return text.starts_with(start); }

TEST_F(VerifierCheckTest, AReplyThatFitsIsAccepted) {
  const v1::AttachReply known = Reply();
  EXPECT_EQ(Why(Reply(), {}), "");
  EXPECT_EQ(Why(Reply(), {&known, &known}), "");
}

TEST_F(VerifierCheckTest, AVerifierThatCanServeNothingIsRefused) {
  v1::AttachReply reply = Reply();
  reply.set_max_context_tokens(1);
  EXPECT_EQ(Why(reply, {}),
            "verifier: offers a vocabulary of 32, 1 context tokens and 8 slots: nothing can be "
            "served with that");
}

TEST_F(VerifierCheckTest, ATextThatIsTooLongIsRefusedWhicheverItIs) {
  v1::AttachReply reply = Reply();
  reply.set_numerics_id(std::string(kMaxAttachTextBytes, 'n'));
  EXPECT_EQ(Why(reply, {}), "");
  reply.mutable_numerics_id()->push_back('n');
  EXPECT_EQ(Why(reply, {}), "verifier: states a numerics_id of 1025 bytes; allowed: 1024");
  reply.clear_numerics_id();
  reply.set_model(std::string(5000, 'm'));
  EXPECT_EQ(Why(reply, {}), "verifier: states a model of 5000 bytes; allowed: 1024");
  EXPECT_EQ(CheckDrafter(reply).message(), "draft: states a model of 5000 bytes; allowed: 1024");
}

TEST_F(VerifierCheckTest, TheSameVerifierIsComparedBeforeTheOthers) {
  const v1::AttachReply known = Reply();
  v1::AttachReply reply = Reply();
  reply.set_model("another");
  EXPECT_PRED2(StartsWith, Why(reply, {&known, &known}), "verifier: came back with model another");
  EXPECT_PRED2(StartsWith, Why(reply, {nullptr, &known}), "verifier: serves model another");
  reply = Reply();
  reply.set_model_fingerprint("other weights");
  EXPECT_PRED2(StartsWith, Why(reply, {&known, &known}), "verifier: came back with other weights");
  EXPECT_PRED2(StartsWith, Why(reply, {nullptr, &known}),
               "verifier: its weights or constants of config.json are not those that the others "
               "serve as toy");
}

TEST_F(VerifierCheckTest, AVerifierThatFitsItsOwnPastMustFitTheOthers) {
  const v1::AttachReply before = Reply();
  v1::AttachReply others = Reply();
  others.set_max_context_tokens(200);
  EXPECT_PRED2(StartsWith, Why(Reply(), {&before, &others}),
               "verifier: serves model toy with a vocabulary of 32 and 100 context tokens; the "
               "others serve toy with 32 and 200");
}

TEST_F(VerifierCheckTest, AVerifierMayComeBackWithSlotsThatTheRouterDoesNotUse) {
  const v1::AttachReply before = Reply();
  v1::AttachReply reply = Reply();
  reply.set_max_slots(kMaxSlots);
  EXPECT_EQ(Why(reply, {&before, nullptr}), "");
  reply.set_max_slots(kMaxSlots - 1);
  EXPECT_PRED2(StartsWith, Why(reply, {&before, nullptr}), "verifier: came back with");
}

TEST(VocabularyComparisonTest, TheFirstDifferenceOfAllChunksIsNamed) {
  const ToyTokenizer target = ToyTokenizer::OfSize(32);
  v1::AttachReply draft;
  draft.set_vocabulary_size(32);
  const v1::AttachReply same_size = draft;
  VocabularyComparison comparison(&target);
  v1::VocabularyChunk chunk;
  for (const char* entry : {"a", "b"}) chunk.add_entries(entry);
  comparison.Add(chunk);
  EXPECT_EQ(comparison.Verdict(draft, same_size),
            "draft: vocabulary's fingerprint differs from the target's (models must share a "
            "tokenizer; check --draft)");
  chunk.set_first_id(2);
  comparison.Add(chunk);
  chunk.set_first_id(4);
  comparison.Add(chunk);
  EXPECT_EQ(comparison.Verdict(draft, same_size),
            "draft: vocabulary entry 2 is \"a\", the target's is \"c\" (models must share a "
            "tokenizer; check --draft)");
  comparison.Begin();
  draft.set_vocabulary_size(31);
  EXPECT_EQ(comparison.Verdict(draft, same_size),
            "draft: vocabulary has 31 entries, the target's has 32 (models must share a "
            "tokenizer; check --draft)");
}

TEST(VocabularyComparisonTest, EntriesBeyondTheTargetsVocabularyDiffer) {
  const ToyTokenizer target = ToyTokenizer::OfSize(32);
  VocabularyComparison comparison(&target);
  v1::VocabularyChunk chunk;
  chunk.set_first_id(32);
  chunk.add_entries("more");
  comparison.Add(chunk);
  EXPECT_NE(comparison.Verdict({}, {}).find("entry 32 is \"more\", the target's is \"\""),
            std::string::npos);
}

// ---------------------------------------------------------------- through the engine

TEST(AttachCheckTest, AVocabularyOfAnotherSizeIsNamed) {
  EngineDriver driver;
  driver.drafter.options.vocabulary_size = 32;
  driver.drafter.options.fingerprint = "other";
  driver.drafter.options.entries.resize(32);
  driver.drafter.options.entries[20] = "x\n";
  driver.Start();
  EXPECT_FALSE(driver.engine().workers().ready(kDrafterPeer));
  EXPECT_TRUE(driver.engine().workers().drafters_settled());
  EXPECT_TRUE(Says(driver,
                   "draft: vocabulary has 32 entries, the target's has 64 (models must share a "
                   "tokenizer; check --draft); first difference: entry 20 is \"x\\n\", the "
                   "target's is \"u\""));
  EXPECT_EQ(driver.Generate(driver.Request({1}, 5)).ids.size(), 5u);
}

TEST(AttachCheckTest, AVocabularyOfTheSameSizeIsComparedEntryByEntry) {
  EngineDriver driver;
  driver.drafter.options.fingerprint = "other";
  std::swap(driver.drafter.options.entries[50], driver.drafter.options.entries[51]);
  driver.Start();
  EXPECT_FALSE(driver.engine().workers().ready(kDrafterPeer));
  EXPECT_TRUE(Says(driver, "draft: vocabulary entry 50 is \"<51>\", the target's is \"<50>\""));
}

TEST(AttachCheckTest, AVerifierThatComesBackSmallerIsRefused) {
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

TEST(AttachCheckTest, AVerifierThatComesBackWithAnotherModelIsRefused) {
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

TEST(AttachCheckTest, AVerifierThatComesBackWithOtherWeightsIsRefused) {
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

TEST(AttachCheckTest, WeightsAreRememberedWhileAVerifierStatesNone) {
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

TEST(AttachCheckTest, AVerifierThatStatesNoWeightsIsAccepted) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.options.model_fingerprint.clear();
  const CallId call = driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_TRUE(driver.calls[call].status->ok()) << *driver.calls[call].status;
}

TEST(AttachCheckTest, OtherNumericsAreLogged) {
  EngineDriver driver;
  driver.Start();
  driver.Kill(Worker::kVerifier);
  driver.Revive(Worker::kVerifier);
  driver.verifier.options.numerics_id = "toy2";
  driver.Send(driver.Request({1, 2}, 10));
  ASSERT_TRUE(driver.Run());
  EXPECT_TRUE(Says(driver, "other numerics (toy2, was toy)"));
}

}  // namespace
}  // namespace tandem::attach_check_test
