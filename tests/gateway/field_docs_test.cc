// Compares the table of docs/openai.md with the table of fields.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "services/gateway/api/field_table.h"

namespace tandem::gateway {
namespace {

constexpr char kBegin[] = "<!-- made from services/gateway/api/field_table.cc -->\n";
constexpr char kEnd[] = "<!-- end -->\n";

const char* OriginName(Origin origin) {
  return origin == Origin::kOpenAi ? "OpenAI" : origin == Origin::kVllm ? "vLLM" : "Tandem";
}

std::string TreatmentText(const Field& field) {
  if (field.treatment == Treatment::kSupported) return "supported";
  if (field.treatment == Treatment::kIgnored) return "ignored";
  if (field.harmless.empty()) return "refused";
  return "refused, except `" + std::string(field.harmless) + "`";
}

// Returns the text that docs/openai.md must have.
std::string Tables() {
  struct Section {
    Endpoint endpoint;
    const char* title;
  };
  constexpr Section kSections[] = {{kCompletions, "/v1/completions"},
                                   {kTokenize, "/v1/tokenize"},
                                   {kDetokenize, "/v1/detokenize"}};
  std::string text;
  for (const Section& section : kSections) {
    text += "\n### `" + std::string(section.title) + "`\n\n";
    text += "| field | from | treatment | meaning |\n| --- | --- | --- | --- |\n";
    for (const Field& field : FieldTable()) {
      if ((field.endpoints & section.endpoint) == 0) continue;
      text += "| `" + std::string(field.name) + "` | " + OriginName(field.origin) + " | " +
              TreatmentText(field) + " | " + std::string(field.note) + " |\n";
    }
  }
  return text + "\n";
}

// TANDEM_UPDATE_DOCS=1 writes the docs.
TEST(FieldDocsTest, TheDocsHaveTheSameTables) {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/docs/openai.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string docs = text.str();
  const size_t begin = docs.find(kBegin);
  const size_t end = docs.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << path << " lacks " << kBegin;
  ASSERT_NE(end, std::string::npos) << path << " lacks " << kEnd;
  const size_t from = begin + sizeof(kBegin) - 1;
  if (std::getenv("TANDEM_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << docs.substr(0, from) << Tables() << docs.substr(end);
    return;
  }
  EXPECT_EQ(docs.substr(from, end - from), Tables())
      << "TANDEM_UPDATE_DOCS=1 tests/gateway_test writes " << path;
}

}  // namespace
}  // namespace tandem::gateway
