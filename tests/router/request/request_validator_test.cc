#include "services/router/request/request_validator.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/router/toy_tokenizer.h"

namespace tandem::request_validator_test {
namespace {

using testing::ToyTokenizer;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const ToyTokenizer& Vocabulary() {
  static const ToyTokenizer vocabulary = ToyTokenizer::OfSize(64);
  return vocabulary;
}

ServedModel Served() {
  ServedModel served;
  served.model = "toy";
  served.draft_models = {"tiny"};
  served.vocabulary_size = 64;
  served.max_context_tokens = 32;
  served.end_of_text_ids = {63};
  return served;
}

v1::GenerateRequest Good() {
  v1::GenerateRequest request;
  request.set_prompt("hello");
  return request;
}

absl::StatusOr<GenerationRequest> Validate(const v1::GenerateRequest& request) {
  const RequestValidator validator(RequestLimits(), &Vocabulary(), [] { return uint64_t{77}; });
  return validator.Validate(request, Served());
}

struct BadRequest {
  std::string name;
  std::function<void(v1::GenerateRequest*)> spoil;
  std::vector<std::string> words;  // that the message must have
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

v1::SamplingParams* Sampling(v1::GenerateRequest* r) { return r->mutable_sampling_params(); }
v1::SpeculationParams* Speculation(v1::GenerateRequest* r) { return r->mutable_speculation(); }

using R = v1::GenerateRequest*;

const BadRequest kBadRequests[] = {
    {"no input", [](R r) { r->clear_input(); }, {"prompt", "prompt_token_ids", "one of"}},
    {"empty prompt", [](R r) { r->set_prompt(""); }, {"prompt", "empty"}},
    {"prompt without tokens", [](R r) { r->set_prompt("\x01\x02"); }, {"prompt", "no tokens"}},
    {"empty ids", [](R r) { r->mutable_prompt_token_ids(); }, {"prompt_token_ids", "no ids"}},
    {"negative id",
     [](R r) { r->mutable_prompt_token_ids()->add_ids(-1); },
     {"prompt_token_ids[0]", "-1", "0 to 63"}},
    {"id past the vocabulary",
     [](R r) { r->mutable_prompt_token_ids()->add_ids(64); },
     {"prompt_token_ids[0]", "64", "0 to 63"}},
    {"prompt that fills the context",
     [](R r) { r->set_prompt(std::string(32, 'a')); },
     {"prompt", "32 tokens", "at most 31"}},
    {"ids that fill the context",
     [](R r) {
       for (int i = 0; i < 32; ++i) r->mutable_prompt_token_ids()->add_ids(1);
     },
     {"prompt_token_ids", "32 tokens", "at most 31"}},
    {"prompt of too many bytes",
     [](R r) { r->set_prompt(std::string((2 << 20) + 1, 'a')); },
     {"prompt", "2097153 bytes", "at most 2097152"}},
    {"long request id",
     [](R r) { r->set_request_id(std::string(129, 'x')); },
     {"request_id", "129", "128"}},
    {"other model",
     [](R r) { r->set_model("gpt"); },
     {"model", "gpt", "toy"},
     absl::StatusCode::kNotFound},
    {"temperature below zero",
     [](R r) { Sampling(r)->set_temperature(-0.5f); },
     {"temperature", "-0.5", "0"}},
    {"temperature nan", [](R r) { Sampling(r)->set_temperature(kNan); }, {"temperature", "nan"}},
    {"temperature infinite",
     [](R r) { Sampling(r)->set_temperature(kInfinity); },
     {"temperature", "inf"}},
    {"top_p zero", [](R r) { Sampling(r)->set_top_p(0); }, {"top_p", "0", "at most 1"}},
    {"top_p over one", [](R r) { Sampling(r)->set_top_p(1.5f); }, {"top_p", "1.5", "at most 1"}},
    {"top_p nan", [](R r) { Sampling(r)->set_top_p(kNan); }, {"top_p", "nan"}},
    {"min_p below zero", [](R r) { Sampling(r)->set_min_p(-0.25f); }, {"min_p", "-0.25", "0 to 1"}},
    {"min_p over one", [](R r) { Sampling(r)->set_min_p(2); }, {"min_p", "2", "0 to 1"}},
    {"min_p nan", [](R r) { Sampling(r)->set_min_p(kNan); }, {"min_p", "nan"}},
    {"top_k", [](R r) { Sampling(r)->set_top_k(-2); }, {"top_k", "-2", "-1"}},
    {"repetition zero",
     [](R r) { Sampling(r)->set_repetition_penalty(0); },
     {"repetition_penalty", "got 0", "more than 0"}},
    {"repetition negative",
     [](R r) { Sampling(r)->set_repetition_penalty(-1); },
     {"repetition_penalty", "-1"}},
    {"repetition infinite",
     [](R r) { Sampling(r)->set_repetition_penalty(kInfinity); },
     {"repetition_penalty", "inf"}},
    {"presence",
     [](R r) { Sampling(r)->set_presence_penalty(2.5f); },
     {"presence_penalty", "2.5", "-2 to 2"}},
    {"presence nan",
     [](R r) { Sampling(r)->set_presence_penalty(kNan); },
     {"presence_penalty", "nan"}},
    {"frequency",
     [](R r) { Sampling(r)->set_frequency_penalty(-3); },
     {"frequency_penalty", "-3", "-2 to 2"}},
    {"frequency infinite",
     [](R r) { Sampling(r)->set_frequency_penalty(kInfinity); },
     {"frequency_penalty", "inf"}},
    {"bias of a negative id",
     [](R r) { (*Sampling(r)->mutable_logit_bias())[-1] = 1; },
     {"logit_bias", "-1", "0 to 63"}},
    {"bias of an id past the vocabulary",
     [](R r) { (*Sampling(r)->mutable_logit_bias())[64] = 1; },
     {"logit_bias", "64", "0 to 63"}},
    {"bias too large",
     [](R r) { (*Sampling(r)->mutable_logit_bias())[5] = 101; },
     {"logit_bias[5]", "101", "-100 to 100"}},
    {"bias nan",
     [](R r) { (*Sampling(r)->mutable_logit_bias())[5] = kNan; },
     {"logit_bias[5]", "nan"}},
    {"too many biases",
     [](R r) {
       for (int i = 0; i < 1025; ++i) (*Sampling(r)->mutable_logit_bias())[i] = 0;
     },
     {"logit_bias", "1025", "1024"}},
    {"max_tokens zero", [](R r) { Sampling(r)->set_max_tokens(0); }, {"max_tokens", "0", "1"}},
    {"max_tokens negative, scored",
     [](R r) {
       Sampling(r)->set_max_tokens(-1);
       Sampling(r)->set_prompt_logprobs(0);
     },
     {"max_tokens", "-1", "0 or more"}},
    {"prompt_logprobs negative",
     [](R r) { Sampling(r)->set_prompt_logprobs(-1); },
     {"prompt_logprobs", "-1", "0 to 20"}},
    {"too many prompt_logprobs",
     [](R r) { Sampling(r)->set_prompt_logprobs(21); },
     {"prompt_logprobs", "21", "0 to 20"}},
    {"max_tokens negative", [](R r) { Sampling(r)->set_max_tokens(-7); }, {"max_tokens", "-7"}},
    {"min_tokens negative", [](R r) { Sampling(r)->set_min_tokens(-1); }, {"min_tokens", "-1"}},
    {"min_tokens over max_tokens",
     [](R r) {
       Sampling(r)->set_max_tokens(8);
       Sampling(r)->set_min_tokens(9);
     },
     {"min_tokens", "9", "0 to 8"}},
    {"min_tokens over the default",
     [](R r) { Sampling(r)->set_min_tokens(257); },
     {"min_tokens", "257", "0 to 256"}},
    {"empty stop", [](R r) { Sampling(r)->add_stop(""); }, {"stop[0]", "empty"}},
    {"long stop",
     [](R r) { Sampling(r)->add_stop(std::string(257, 'x')); },
     {"stop[0]", "257", "256"}},
    {"too many stops",
     [](R r) {
       for (int i = 0; i < 17; ++i) Sampling(r)->add_stop("never");
     },
     {"stop", "17", "16"}},
    {"stop id negative",
     [](R r) { Sampling(r)->add_stop_token_ids(-1); },
     {"stop_token_ids[0]", "-1", "0 to 63"}},
    {"stop id past the vocabulary",
     [](R r) { Sampling(r)->add_stop_token_ids(64); },
     {"stop_token_ids[0]", "64", "0 to 63"}},
    {"too many stop ids",
     [](R r) {
       for (int i = 0; i < 257; ++i) Sampling(r)->add_stop_token_ids(1);
     },
     {"stop_token_ids", "257", "256"}},
    {"no choices", [](R r) { Sampling(r)->set_n(0); }, {"n", "0", "1 to 16"}},
    {"too many choices", [](R r) { Sampling(r)->set_n(17); }, {"n", "17", "1 to 16"}},
    {"logprobs negative",
     [](R r) { Sampling(r)->set_logprobs(-1); },
     {"logprobs", "-1", "0 to 20"}},
    {"logprobs too many",
     [](R r) { Sampling(r)->set_logprobs(21); },
     {"logprobs", "21", "0 to 20"}},
    {"draft_length negative",
     [](R r) { Speculation(r)->set_draft_length(-1); },
     {"draft_length", "-1", "0 to 16"}},
    {"draft_length too long",
     [](R r) { Speculation(r)->set_draft_length(17); },
     {"draft_length", "17", "0 to 16"}},
    {"unknown drafter",
     [](R r) { Speculation(r)->set_drafter("big"); },
     {"drafter", "big", "tiny", "suffix"}},
    {"prediction out of the vocabulary",
     [](R r) { Speculation(r)->mutable_prediction()->mutable_token_ids()->add_ids(64); },
     {"speculation.prediction.token_ids[0]", "64"}},
    {"draft temperature negative",
     [](R r) { Speculation(r)->mutable_draft_sampling()->set_temperature(-1); },
     {"speculation.draft_sampling.temperature", "-1", "0 (the likeliest tokens)"}},
    {"draft temperature nan",
     [](R r) { Speculation(r)->mutable_draft_sampling()->set_temperature(kNan); },
     {"speculation.draft_sampling.temperature", "nan"}},
    {"draft top_k negative",
     [](R r) { Speculation(r)->mutable_draft_sampling()->set_top_k(-2); },
     {"speculation.draft_sampling.top_k", "-2", "turns it off"}},
    {"draft top_p zero",
     [](R r) { Speculation(r)->mutable_draft_sampling()->set_top_p(0); },
     {"speculation.draft_sampling.top_p", "0", "at most 1"}},
    {"lenience zero", [](R r) { Speculation(r)->set_lenience(0); }, {"lenience", "0", "at most 1"}},
    {"lenience over one", [](R r) { Speculation(r)->set_lenience(1.5f); }, {"lenience", "1.5"}},
    {"lenience nan", [](R r) { Speculation(r)->set_lenience(kNan); }, {"lenience", "nan"}},
    {"lenience with reproducible",
     [](R r) {
       Speculation(r)->set_lenience(0.5f);
       Speculation(r)->set_reproducible(true);
     },
     {"lenience", "0.5", "reproducible"}},
};

TEST(RequestValidatorTest, EveryBadRequestIsNamedWithWhatWasGivenAndWhatIsAllowed) {
  for (const BadRequest& bad : kBadRequests) {
    v1::GenerateRequest request = Good();
    bad.spoil(&request);
    const absl::Status status = Validate(request).status();
    EXPECT_EQ(status.code(), bad.code) << bad.name << ": " << status.ToString();
    const std::string message(status.message());
    for (const std::string& word : bad.words) {
      EXPECT_NE(message.find(word), std::string::npos) << bad.name << ": " << message;
    }
  }
}

TEST(RequestValidatorTest, ErrorsRepeatLittleOfALongStringAndNoControlBytes) {
  const std::string nasty = "\n\x1b[2J\"" + std::string(1 << 20, 'x');
  const std::vector<std::function<void(v1::GenerateRequest*)>> spoils = {
      [&](v1::GenerateRequest* r) { r->set_model(nasty); },
      [&](v1::GenerateRequest* r) { Speculation(r)->set_drafter(nasty); },
      [&](v1::GenerateRequest* r) { r->set_request_id(nasty); },
  };
  for (const auto& spoil : spoils) {
    v1::GenerateRequest request = Good();
    spoil(&request);
    const std::string message(Validate(request).status().message());
    EXPECT_LT(message.size(), 300u);
    EXPECT_NE(message.find("1048582 bytes"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  }
}

TEST(RequestValidatorTest, FillsInEveryDefault) {
  const absl::StatusOr<GenerationRequest> request = Validate(Good());
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::SamplingParams& sampling = request->open.sampling();
  EXPECT_EQ(sampling.temperature(), 1);
  EXPECT_EQ(sampling.top_p(), 1);
  EXPECT_EQ(sampling.top_k(), 0);
  EXPECT_EQ(sampling.min_p(), 0);
  EXPECT_EQ(sampling.repetition_penalty(), 1);
  EXPECT_EQ(sampling.seed(), 77u);
  EXPECT_FALSE(sampling.has_logprobs());
  ASSERT_EQ(sampling.stop_token_ids_size(), 1);
  EXPECT_EQ(sampling.stop_token_ids(0), 63);
  EXPECT_EQ(request->open.prompt_length(), 5u);
  EXPECT_EQ(request->open.lenience(), 1);
  EXPECT_FALSE(request->open.reproducible());
  EXPECT_EQ(request->max_tokens, 27);  // the context leaves less than the default of 256
  EXPECT_TRUE(request->warnings.empty());
  EXPECT_EQ(request->request_id, "000000000000004d");
  EXPECT_FALSE(request->draft_length.has_value());
  EXPECT_TRUE(request->skip_special_tokens);
  EXPECT_TRUE(request->needs_draft_log_probs());
}

TEST(RequestValidatorTest, AClientThatAsksForMoreThanTheContextHoldsIsWarned) {
  v1::GenerateRequest request = Good();
  request.mutable_sampling_params()->set_max_tokens(28);
  const auto cut = Validate(request);
  EXPECT_EQ(cut->max_tokens, 27);
  EXPECT_EQ(cut->warnings, std::vector<std::string>{"max_tokens: got 28, cut to 27: the context of "
                                                    "32 tokens also holds the prompt's 5 tokens"});
  request.mutable_sampling_params()->set_max_tokens(27);
  EXPECT_TRUE(Validate(request)->warnings.empty());
}

TEST(RequestValidatorTest, LogprobsOfThePromptAreForTheFirstChoiceAndNeedNoOutput) {
  v1::GenerateRequest request = Good();
  request.mutable_sampling_params()->set_prompt_logprobs(3);
  request.mutable_sampling_params()->set_max_tokens(0);
  const auto resolved = Validate(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->open.prompt_logprobs(), 3);
  EXPECT_EQ(resolved->max_tokens, 0);
  EXPECT_EQ(resolved->draft_length, 0u) << "there is nothing to draft";
  EXPECT_FALSE(resolved->ForChoice(1).open.has_prompt_logprobs());
  EXPECT_TRUE(resolved->ForChoice(0).open.has_prompt_logprobs());
  EXPECT_FALSE(resolved->OpenForDrafter().has_prompt_logprobs());
  EXPECT_FALSE(Validate(Good())->open.has_prompt_logprobs());
}

TEST(RequestValidatorTest, ADrafterIsChosenByNameOrLeftToTheServer) {
  v1::GenerateRequest request = Good();
  EXPECT_EQ(Validate(request)->drafters, DefaultDrafters());
  for (const auto& [name, drafter] :
       std::vector<std::pair<std::string, Drafter>>{{"tiny", Drafter::kModel},
                                                    {"model", Drafter::kModel},
                                                    {"suffix", Drafter::kSuffix},
                                                    {"ngram", Drafter::kNgram},
                                                    {"recycling", Drafter::kRecycling},
                                                    {"prediction", Drafter::kPrediction}}) {
    request.mutable_speculation()->set_drafter(name);
    EXPECT_EQ(Validate(request)->drafters, DrafterSet(drafter)) << name;
    EXPECT_FALSE(Validate(request)->draft_length.has_value());
  }
  request.mutable_speculation()->set_drafter("none");
  EXPECT_EQ(Validate(request)->draft_length, 0u);
}

TEST(RequestValidatorTest, OneOfSeveralDraftModelsCanBeNamed) {
  ServedModel served = Served();
  served.draft_models = {"tiny", "small"};
  const RequestValidator validator(RequestLimits(), &Vocabulary(), [] { return uint64_t{77}; });
  v1::GenerateRequest request = Good();
  request.mutable_speculation()->set_drafter("small");
  const auto named = validator.Validate(request, served);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->drafters, DrafterSet(Drafter::kModel));
  EXPECT_EQ(named->draft_model, "small");
  request.mutable_speculation()->set_drafter("model");
  EXPECT_EQ(validator.Validate(request, served)->draft_model, "") << "any of them";
  request.mutable_speculation()->set_drafter("large");
  EXPECT_THAT(std::string(validator.Validate(request, served).status().message()),
              ::testing::HasSubstr("\"model\", \"tiny\", \"small\", "));
}

TEST(RequestValidatorTest, APredictionIsTokenizedWithoutSpecialTokensAndCutToTheContext) {
  v1::GenerateRequest request = Good();
  v1::Prediction* prediction = request.mutable_speculation()->mutable_prediction();
  prediction->set_text("abc");
  EXPECT_EQ(Validate(request)->prediction.size(), 3u);
  prediction->set_text(std::string(100, 'a'));
  EXPECT_EQ(Validate(request)->prediction.size(), 32u);
  prediction->mutable_token_ids()->add_ids(5);
  EXPECT_EQ(Validate(request)->prediction, std::vector<int32_t>{5});
  EXPECT_TRUE(Validate(request)->warnings.empty());
  request.mutable_speculation()->set_drafter("suffix");
  EXPECT_TRUE(Validate(request)->prediction.empty());
  ASSERT_EQ(Validate(request)->warnings.size(), 1u);
  EXPECT_THAT(Validate(request)->warnings[0], ::testing::HasSubstr("speculation.prediction"));
}

TEST(RequestValidatorTest, APromptThatTheKvCacheCanNeverHoldIsNotTheClientsMistake) {
  ServedModel served = Served();
  served.context_limited_by_pages = true;
  const RequestValidator validator(RequestLimits(), &Vocabulary(), [] { return uint64_t{77}; });
  v1::GenerateRequest request;
  auto* ids = request.mutable_prompt_token_ids()->mutable_ids();
  ids->Resize(32, 5);
  const absl::Status refused = validator.Validate(request, served).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(refused.message()),
            "prompt_token_ids: got 32 tokens, allowed: at most 31 tokens, which is what the KV "
            "cache holds with one more (--kv-cache-bytes)");
  ids->RemoveLast();
  EXPECT_TRUE(validator.Validate(request, served).ok());
}

TEST(RequestValidatorTest, StopIdsAreSortedOnceAndWithoutEndOfTextWhenIgnored) {
  v1::GenerateRequest request = Good();
  for (int id : {9, 3, 9, 63}) request.mutable_sampling_params()->add_stop_token_ids(id);
  EXPECT_EQ(Validate(request)->stop_token_ids, (std::vector<int32_t>{3, 9, 63}));
  request.mutable_sampling_params()->clear_stop_token_ids();
  request.mutable_sampling_params()->set_ignore_eos(true);
  EXPECT_TRUE(Validate(request)->stop_token_ids.empty());
}

TEST(RequestValidatorTest, ASeedMakesReproducibleTheDefault) {
  v1::GenerateRequest request = Good();
  request.mutable_sampling_params()->set_seed(0);
  EXPECT_TRUE(Validate(request)->open.reproducible());
  EXPECT_EQ(Validate(request)->open.sampling().seed(), 0u);
  EXPECT_FALSE(Validate(request)->needs_draft_log_probs());
  // An explicit wish for lenience turns the default off; what was asked for wins over what was not.
  request.mutable_speculation()->set_lenience(0.5f);
  EXPECT_FALSE(Validate(request)->open.reproducible());
  request.mutable_speculation()->clear_lenience();
  request.mutable_speculation()->set_reproducible(false);
  EXPECT_FALSE(Validate(request)->open.reproducible());
}

TEST(RequestValidatorTest, TheDraftModelCanDrawInItsOwnWay) {
  v1::GenerateRequest request = Good();
  request.mutable_sampling_params()->set_top_p(0.9f);
  request.mutable_sampling_params()->set_top_k(5);
  EXPECT_EQ(Validate(request)->OpenForDrafter().SerializeAsString(),
            Validate(request)->open.SerializeAsString());
  v1::DraftSampling* draft = request.mutable_speculation()->mutable_draft_sampling();
  draft->set_temperature(0.5f);
  draft->set_top_k(-1);
  const absl::StatusOr<GenerationRequest> drawn = Validate(request);
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_TRUE(drawn->needs_draft_log_probs());
  EXPECT_EQ(drawn->open.sampling().temperature(), 1);
  EXPECT_EQ(drawn->OpenForDrafter().sampling().temperature(), 0.5f);
  EXPECT_EQ(drawn->OpenForDrafter().sampling().top_k(), 0);
  EXPECT_EQ(drawn->OpenForDrafter().sampling().top_p(), 0.9f);
  draft->set_temperature(0);
  EXPECT_FALSE(Validate(request)->needs_draft_log_probs());
  EXPECT_TRUE(Validate(request)->is_sampled());
  EXPECT_TRUE(Validate(request)->warnings.empty());

  request.mutable_sampling_params()->set_temperature(0);
  draft->set_temperature(1);
  const absl::StatusOr<GenerationRequest> greedy = Validate(request);
  EXPECT_EQ(greedy->OpenForDrafter().sampling().temperature(), 0);
  ASSERT_EQ(greedy->warnings.size(), 1u);
  EXPECT_NE(greedy->warnings[0].find("the request is greedy"), std::string::npos);
  EXPECT_FALSE(greedy->has_draft_sampling());
  request.mutable_sampling_params()->set_temperature(1);
  EXPECT_TRUE(Validate(request)->has_draft_sampling());
  request.mutable_speculation()->set_enabled(false);
  const absl::StatusOr<GenerationRequest> plain = Validate(request);
  EXPECT_FALSE(plain->has_draft_sampling());
  ASSERT_EQ(plain->warnings.size(), 1u);
  EXPECT_NE(plain->warnings[0].find("no draft model drafts"), std::string::npos);
}

TEST(RequestValidatorTest, SpeculationCanBeTurnedOff) {
  v1::GenerateRequest request = Good();
  request.mutable_speculation()->set_enabled(false);
  request.mutable_speculation()->set_draft_length(4);
  EXPECT_EQ(Validate(request)->draft_length, 0u);
}

TEST(RequestValidatorTest, BordersAreAllowed) {
  v1::GenerateRequest request = Good();
  request.set_prompt(std::string(31, 'a'));
  request.set_model("toy");
  v1::SamplingParams* sampling = request.mutable_sampling_params();
  sampling->set_temperature(0);
  sampling->set_top_p(1);
  sampling->set_min_p(1);
  sampling->set_top_k(-1);
  sampling->set_presence_penalty(-2);
  sampling->set_frequency_penalty(2);
  (*sampling->mutable_logit_bias())[63] = -100;
  sampling->set_logprobs(20);
  sampling->set_max_tokens(1);
  sampling->set_min_tokens(1);
  for (int i = 0; i < 16; ++i) sampling->add_stop(std::string(256, 'x'));
  request.mutable_speculation()->set_draft_length(16);
  request.mutable_speculation()->set_drafter("tiny");
  request.mutable_speculation()->set_lenience(1);
  request.mutable_speculation()->set_reproducible(true);
  const absl::StatusOr<GenerationRequest> valid = Validate(request);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->max_tokens, 1);
  EXPECT_TRUE(valid->greedy());
}

TEST(RequestValidatorTest, TokenizeAndDetokenizeAreBounded) {
  const RequestValidator validator(RequestLimits(), &Vocabulary(), [] { return uint64_t{1}; });
  const std::string text((2 << 20) + 1, 'a');
  EXPECT_EQ(validator.encoder().EncodeText("text", text, false).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::DetokenizeRequest detokenize;
  detokenize.add_ids(63);
  EXPECT_TRUE(validator.ValidateDetokenize(detokenize).ok());
  detokenize.add_ids(64);
  EXPECT_EQ(validator.ValidateDetokenize(detokenize).code(), absl::StatusCode::kInvalidArgument);
}

// The entries are "a", "b" and the special token "^".
std::vector<std::string> Warnings(const std::string& prompt, bool tokenizer_begins,
                                  std::optional<bool> add_special_tokens = std::nullopt) {
  const ToyTokenizer tokenizer({"a", "b", "^"}, tokenizer_begins);
  const RequestValidator validator(RequestLimits(), &tokenizer, [] { return uint64_t{77}; });
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  if (add_special_tokens) request.set_add_special_tokens(*add_special_tokens);
  ServedModel served = Served();
  served.vocabulary_size = 3;
  served.end_of_text_ids = {2};
  const auto accepted = validator.Validate(request, served);
  EXPECT_TRUE(accepted.ok()) << accepted.status();
  return accepted.ok() ? accepted->warnings : std::vector<std::string>{};
}

TEST(RequestValidatorTest, WarnsOfAPromptThatBeginsWithTheTokenThatTheTokenizerAdds) {
  const std::vector<std::string> warnings = Warnings("^ab", /*tokenizer_begins=*/true);
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_EQ(warnings[0],
            "prompt: begins with ^ twice, because the tokenizer adds one; leave it out of the "
            "text, or set add_special_tokens to false");
}

TEST(RequestValidatorTest, DoesNotWarnOfASpecialTokenThatIsThereOnceOrByTheClientsWish) {
  EXPECT_EQ(Warnings("ab", true), std::vector<std::string>{});
  EXPECT_EQ(Warnings("^ab", true, false), std::vector<std::string>{});
  EXPECT_EQ(Warnings("^ab", false), std::vector<std::string>{});
  EXPECT_EQ(Warnings("aab", true), std::vector<std::string>{});
  // The client wrote both.
  EXPECT_EQ(Warnings("^^ab", false), std::vector<std::string>{});
}

}  // namespace
}  // namespace tandem::request_validator_test
