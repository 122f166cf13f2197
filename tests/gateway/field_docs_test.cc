// Compares the table of docs/openai.md with the table of fields.
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/api/fields/field_table.h"
#include "tests/support/docs_tables.h"

namespace tandem::gateway {
namespace {

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
                                   {kChat, "/v1/chat/completions"},
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
  testing::ExpectTables(std::string(TANDEM_SOURCE_DIR) + "/docs/openai.md",
                        "<!-- made from services/gateway/api/fields/field_table.cc -->\n", Tables(),
                        "tests/gateway_test");
}

}  // namespace
}  // namespace tandem::gateway
