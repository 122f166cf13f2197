// Tests that bad tokenizer.json files are refused quickly and cheaply, by file and field.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

#if defined(TANDEM_ADDRESS_SANITIZER) || defined(TANDEM_THREAD_SANITIZER)
constexpr int64_t kMaxGrowthBytes = INT64_MAX;  // the sanitizers' own memory is far larger
constexpr std::chrono::seconds kMaxTime(60);
#else
constexpr int64_t kMaxGrowthBytes = 64 << 20;
constexpr std::chrono::seconds kMaxTime(5);
#endif

int64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Returns the processor time of this process, so that other work on the machine does not matter.
std::chrono::nanoseconds ProcessorTime() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

class TokenizerFileTest : public testing::Test {
 protected:
  TokenizerFileTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("tandem_tokenizer_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directory(folder_);
  }
  ~TokenizerFileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file() const { return folder_ / "tokenizer.json"; }
  void Write(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }

  // Loads the written file. The message must name the file and contain `part`.
  void ExpectRefused(const std::string& part) const {
    const int64_t memory = PeakMemoryBytes();
    const std::chrono::nanoseconds start = ProcessorTime();
    const auto tokenizer = Tokenizer::Load(folder_);
    EXPECT_LT(ProcessorTime() - start, kMaxTime) << part;
    EXPECT_LT(PeakMemoryBytes() - memory, kMaxGrowthBytes) << part;
    ASSERT_FALSE(tokenizer.ok()) << part;
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << part;
    const std::string message(tokenizer.status().message());
    EXPECT_NE(message.find(file().string()), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nwant: " << part;
    EXPECT_LT(message.size(), 1000u);
  }
  void ExpectRefused(const nlohmann::json& contents, const std::string& part) const {
    Write(contents.dump());
    ExpectRefused(part);
  }

  // Returns a small file that loads.
  static nlohmann::json Good() {
    return {{"added_tokens", {{{"id", 3}, {"content", "<s>"}, {"special", true}}}},
            {"normalizer", nullptr},
            {"pre_tokenizer", nullptr},
            {"post_processor", nullptr},
            {"decoder", nullptr},
            {"model",
             {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerFileTest, LoadsASmallFile) {
  Write(Good().dump());
  const auto tokenizer = Tokenizer::Load(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("ab<s>a", true).value(), (std::vector<int32_t>{2, 3, 0}));
}

TEST_F(TokenizerFileTest, NamesAMissingFile) {
  const auto tokenizer = Tokenizer::Load(folder_);
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(tokenizer.status().message().find(file().string()), std::string::npos);
  std::filesystem::create_directory(file());
  EXPECT_FALSE(Tokenizer::Load(folder_).ok());
}

TEST_F(TokenizerFileTest, RefusesFilesThatAreNotJson) {
  for (const char* text : {"", "{", "nonsense", "{\"model\": }", "[1, 2", "{\"a\": \"\xFF\"}",
                           "\"\\uD800\"", "{} {}", "{\"a\": 1e999}"}) {
    Write(text);
    ExpectRefused("not JSON at byte");
  }
}

TEST_F(TokenizerFileTest, RefusesDepthBeforeItParses) {
  Write(std::string(10'000'000, '['));
  ExpectRefused("nested deeper than 64");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  Write(objects);
  ExpectRefused("nested deeper than 64");
}

TEST_F(TokenizerFileTest, RefusesSizesThatWouldCostMemory) {
  Write("{}");
  std::filesystem::resize_file(file(), (64 << 20) + 1);
  ExpectRefused("67108865 bytes");
  Write("{\"x\": \"" + std::string(40 << 20, 'x') + "\"}");
  ExpectRefused("a string is longer");
  std::string zeros = "{\"x\": [0";
  for (int i = 0; i < 10'000'000; ++i) zeros += ",0";
  Write(zeros + "]}");
  ExpectRefused("values beside the vocabulary");
}

TEST_F(TokenizerFileTest, RefusesAVocabularyThatIsTooLarge) {
  std::string text = "{\"model\":{\"vocab\":{";
  for (int i = 0; i < 2'200'000; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + std::to_string(i);
  }
  Write(text + "}}}");
  ExpectRefused("id 2097152 is out of range");
}

TEST_F(TokenizerFileTest, RefusesMissingAndMistypedParts) {
  ExpectRefused(nlohmann::json::array(), "array (want an object)");
  ExpectRefused(nlohmann::json::object(), "model: missing (want an object)");
  const auto refuse = [&](const char* pointer, const nlohmann::json& value,
                          const std::string& part) {
    nlohmann::json contents = Good();
    contents[nlohmann::json::json_pointer(pointer)] = value;
    ExpectRefused(contents, part);
  };
  refuse("/model", "BPE", "model: string (want an object)");
  refuse("/model/vocab", nlohmann::json::object(), "model.vocab: missing or empty");
  refuse("/model/vocab", 7, "model.vocab: missing or empty");
  refuse("/model/merges", nlohmann::json::object({{"a", "b"}}),
         "model.merges: object (want an array)");
  refuse("/model/merges", nullptr, "model.merges: missing (want an array)");
  refuse("/model/merges/0", 5, "model.merges[0]: number (want a string or two)");
  refuse("/model/merges/0", {"a", 5}, "model.merges[0]: number (want a string or two)");
  refuse("/model/merges/0", {"a", "b", "c"}, "model.merges[0]: want two strings");
  refuse("/model/ignore_merges", 1, "model.ignore_merges: number (want true or false)");
  refuse("/model/unk_token", 1, "model.unk_token: number (want a string)");
  refuse("/added_tokens", "x", "added_tokens: string (want an array)");
  refuse("/added_tokens/0", 1, "added_tokens[0]: number (want an object)");
  refuse("/added_tokens/0/content", nullptr, "added_tokens[0].content: missing (want a string)");
  refuse("/added_tokens/0/special", "yes", "added_tokens[0].special: string (want true or false)");
  refuse("/added_tokens/0/id", 1.5, "added_tokens[0].id: number (want an integer)");
  refuse("/normalizer", 1, "normalizer: number (want an object)");
  refuse("/pre_tokenizer", nlohmann::json::object(), "pre_tokenizer.type: missing (want a string)");
}

TEST_F(TokenizerFileTest, RefusesBadEntriesAndMerges) {
  const auto refuse = [&](const std::string& model, const std::string& part) {
    Write(R"({"model":{"type":"BPE",)" + model + "}}");
    ExpectRefused(part);
  };
  refuse(R"("vocab":{"a":-1},"merges":[])", "id -1 is out of range");
  refuse(R"("vocab":{"a":4194304},"merges":[])", "id 4194304 is out of range");
  refuse(R"("vocab":{"a":18446744073709551615},"merges":[])", "is out of range");
  refuse(R"("vocab":{"a":0,"b":0},"merges":[])", "id 0 is given to two entries");
  refuse(R"("vocab":{"a":0,"a":1},"merges":[])", "\"a\"]: the entry is given twice");
  refuse(R"("vocab":{"a":"0"},"merges":[])", "string (want an integer id)");
  refuse(R"("vocab":{"a":[0]},"merges":[])", "(want an integer id)");
  refuse(R"("vocab":{"a":0,"b":1},"merges":["a c"])",
         "model.merges[0]: \"c\" is not in model.vocab");
  refuse(R"("vocab":{"a":0,"b":1},"merges":["a b"])",
         "model.merges[0]: \"ab\" is not in model.vocab");
  refuse(R"("vocab":{"a":0,"b":1,"ab":2},"merges":["a b","ab"])",
         "model.merges[1]: \"ab\" (want two");
  refuse(R"("vocab":{"a":0},"merges":["a b c"])", "(want two entries with one space between)");
}

TEST_F(TokenizerFileTest, RefusesBadAddedTokens) {
  const auto refuse = [&](const nlohmann::json& token, const std::string& part) {
    nlohmann::json contents = Good();
    contents["added_tokens"].push_back(token);
    ExpectRefused(contents, part);
  };
  refuse({{"id", 9}, {"content", ""}}, "added_tokens[1].content: empty");
  refuse({{"id", -1}, {"content", "x"}}, "added_tokens[1].id: -1 is out of range");
  refuse({{"id", 1 << 22}, {"content", "x"}}, "added_tokens[1].id: 4194304 is out of range");
  refuse({{"id", 3}, {"content", "x"}}, "added_tokens[1].id: 3 is given to two tokens");
  refuse({{"id", 0}, {"content", "x"}}, "but model.vocab has \"a\" there");
  refuse({{"id", 7}, {"content", "a"}}, "but model.vocab has 0 for it");
  refuse({{"id", 7}, {"content", "<s>"}}, "the content \"<s>\" is given twice");
  refuse({{"id", 7}, {"content", std::string(5000, 'x')}}, "5000 bytes (want at most 4096)");
}

TEST_F(TokenizerFileTest, RefusesUnsupportedPartsByName) {
  const auto refuse = [&](const char* pointer, const nlohmann::json& value,
                          const std::string& part) {
    nlohmann::json contents = Good();
    contents[nlohmann::json::json_pointer(pointer)] = value;
    ExpectRefused(contents, part);
  };
  refuse("/model/type", "WordPiece", "model.type: \"WordPiece\" is not supported");
  refuse("/model/type", "WordLevel", "model.type: \"WordLevel\" is not supported");
  refuse(
      "/model",
      {{"type", "Unigram"}, {"vocab", nlohmann::json::array({nlohmann::json::array({"a", -1.5})})}},
      "model.type: \"Unigram\" is not supported");
  refuse("/model/dropout", 0.1, "model.dropout: is not supported");
  refuse("/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix: \"##\"");
  refuse("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix: \"</w>\"");
  refuse("/normalizer", {{"type", "Precompiled"}}, "normalizer.type: \"Precompiled\"");
  refuse("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}},
         "normalizer.normalizers[0].type: \"Nmt\"");
  refuse("/pre_tokenizer", {{"type", "BertPreTokenizer"}},
         "pre_tokenizer.type: \"BertPreTokenizer\"");
  refuse("/pre_tokenizer",
         {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Kept"}},
         "pre_tokenizer.behavior: \"Kept\"");
  refuse("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}},
         "pre_tokenizer.replacement: \"__\" (want one character)");
  refuse("/post_processor", {{"type", "BertProcessing"}},
         "post_processor.type: \"BertProcessing\"");
  refuse("/decoder", {{"type", "WordPiece"}}, "decoder.type: \"WordPiece\"");
  refuse("/decoder",
         {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}},
         "decoder.decoders[1]: ByteFallback at this place");
  refuse("/decoder", {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}},
         "decoder.stop: 1 is not supported");
}

TEST_F(TokenizerFileTest, RefusesPathologicalPatterns) {
  const auto refuse = [&](const std::string& regex, const std::string& part) {
    nlohmann::json contents = Good();
    contents["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
    ExpectRefused(contents, "pre_tokenizer.pattern.Regex: " + part);
  };
  refuse("(", "a group is not closed");
  refuse("[z-a]", "pattern \"[z-a]\" does not compile");
  refuse("(a+)+$", "pattern \"(a+)+$\" backtracks exponentially");
  refuse("((((a{1,200}){1,200}){1,200}){1,200})", "pattern");
  refuse(std::string(1 << 19, '('), "pattern of 524288 bytes");
  nlohmann::json contents = Good();
  nlohmann::json step = {{"type", "Digits"}};
  contents["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", nlohmann::json::array_t(60'000, step)}};
  ExpectRefused(contents, "more than 64 steps");
}

TEST_F(TokenizerFileTest, RefusesBadTemplates) {
  const auto refuse = [&](const nlohmann::json& single, const nlohmann::json& ids,
                          const std::string& part) {
    nlohmann::json contents = Good();
    contents["post_processor"] = {{"type", "TemplateProcessing"},
                                  {"single", single},
                                  {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", ids}}}}}};
    ExpectRefused(contents, part);
  };
  const nlohmann::json text = {{"Sequence", {{"id", "A"}}}};
  const nlohmann::json begin = {{"SpecialToken", {{"id", "<s>"}}}};
  const nlohmann::json other = {{"SpecialToken", {{"id", "<x>"}}}};
  const auto list = [](std::vector<nlohmann::json> parts) { return nlohmann::json(parts); };
  refuse(list({begin}), list({3}), "single: want one Sequence, A");
  refuse(list({text, text}), list({3}), "want one Sequence, A");
  refuse(list({other, text}), list({3}), "special_tokens.<x>: missing");
  refuse(list({begin, text}), list({4}), "ids[0]: 4 is out of range (the vocabulary has 4 ids)");
  refuse(list({begin, text}), list({-1}), "ids[0]: -1 is out of range");
}

TEST_F(TokenizerFileTest, SurvivesRandomDamage) {
  std::mt19937 random(1);
  const auto below = [&](size_t limit) { return random() % limit; };
  size_t num_loaded = 0;
  size_t num_refused = 0;
  for (const char* name : {"added", "partial_bytes", "behaviors"}) {
    std::ifstream input(std::string(TANDEM_SOURCE_DIR "/tests/golden/tokenizer/") + name +
                        "/tokenizer.json");
    const std::string whole{std::istreambuf_iterator<char>(input), {}};
    // The vocabulary is most of the file. Half of the damage therefore goes to the settings before
    // it.
    const size_t settings = whole.find("\"vocab\"");
    ASSERT_NE(settings, std::string::npos);
    for (int round = 0; round < 200; ++round) {
      std::string damaged = whole;
      for (size_t i = 0; i <= below(3); ++i) {
        const size_t at = below(below(2) == 0 ? settings : damaged.size());
        constexpr std::string_view kInserts[] = {"null", "-1",   "[", "{}",      "\"",
                                                 "1e9",  "true", ",", "\\u0000", "*+"};
        switch (below(4)) {
          case 0:
            damaged[at] = static_cast<char>(random());
            break;
          case 1:
            damaged.erase(at, 1 + below(20));
            break;
          case 2:
            damaged.insert(at, kInserts[below(std::size(kInserts))]);
            break;
          default:
            damaged.replace(at, 4, damaged.substr(below(settings), 4));
            break;
        }
      }
      Write(damaged);
      const auto tokenizer = Tokenizer::Load(folder_);
      if (!tokenizer.ok()) {
        EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
        ++num_refused;
        continue;
      }
      ++num_loaded;
      const auto ids = (*tokenizer)->Encode("tok1 [Ä3] it's 123  \n <s>é🙂", true);
      if (ids.ok()) (*tokenizer)->Decode(*ids, false);
    }
  }
  EXPECT_GT(num_loaded, 20u);
  EXPECT_GT(num_refused, 20u);
}

}  // namespace
}  // namespace tandem
