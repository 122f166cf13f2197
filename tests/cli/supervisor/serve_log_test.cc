#include "services/cli/supervisor/serve_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::cli {
namespace {

std::vector<std::string> Lines(const std::ostringstream& out) {
  std::vector<std::string> lines;
  std::istringstream text(out.str());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(ServeLogTest, TextLinesBeginWithTheProcess) {
  std::ostringstream out;
  ServeLog log(false, Palette(false), out);
  log.Line("verifier", "{no json");
  log.Say("info", "serving");
  EXPECT_EQ(out.str(), "verifier: {no json\ntandem: serving\n");
}

TEST(ServeLogTest, JsonLinesOfChildrenPassUnchanged) {
  std::ostringstream out;
  ServeLog log(true, Palette(false), out);
  const std::string line = R"({"level":"info","process":"router","message":"x","slot":1})";
  log.Line("router", line);
  EXPECT_EQ(out.str(), line + "\n");
}

TEST(ServeLogTest, OtherLinesOfChildrenBecomeTheMessageOfAJsonLine) {
  std::ostringstream out;
  ServeLog log(true, Palette(true), out);
  const std::vector<std::string> texts = {"plain", "{\"cut off\": ", "quote \" and \\ and \x01",
                                          ""};
  for (const std::string& text : texts) log.Line("draft", text);
  log.Say("error", "gave up");
  const std::vector<std::string> lines = Lines(out);
  ASSERT_EQ(lines.size(), texts.size() + 1);
  for (size_t i = 0; i < texts.size(); ++i) {
    const nlohmann::json line = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(line["process"], "draft");
    EXPECT_EQ(line["message"], texts[i]);
    EXPECT_EQ(line["level"], "info");
  }
  const nlohmann::json last = nlohmann::json::parse(lines.back());
  EXPECT_EQ(last["process"], "tandem");
  EXPECT_EQ(last["level"], "error");
}

}  // namespace
}  // namespace tandem::cli
