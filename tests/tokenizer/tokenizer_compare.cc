// tokenizer_compare FOLDER: answers requests about FOLDER's tokenizer, one JSON value a line, on
// standard input and output.
// tests/golden/make_tokenizer_golden.py --fuzz compares the answers with Hugging Face's.
//   {"encode": "text", "special": bool}  -> [ids]
//   {"decode": [ids], "skip": bool}      -> {"text": Decode, "pieces": [a
//                                           StreamingDetokenizer's, Finish last]}
// Errors are {"error": "..."}.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

nlohmann::json Answer(const Tokenizer& tokenizer, const nlohmann::json& request) {
  if (request.contains("encode")) {
    const auto ids = tokenizer.Encode(request["encode"].get<std::string>(), request["special"]);
    if (!ids.ok()) return {{"error", std::string(ids.status().message())}};
    return *ids;
  }
  const auto ids = request["decode"].get<std::vector<int32_t>>();
  const bool skip = request["skip"];
  StreamingDetokenizer stream(&tokenizer, skip);
  nlohmann::json pieces = nlohmann::json::array();
  for (const int32_t id : ids) pieces.push_back(stream.Push(id));
  pieces.push_back(stream.Finish());
  return {{"text", tokenizer.Decode(ids, skip)}, {"pieces", pieces}};
}

int Run(const char* folder) {
  const auto tokenizer = Tokenizer::Load(folder);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(**tokenizer, nlohmann::json::parse(line)).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_compare FOLDER < requests\n";
    return 2;
  }
  return tandem::Run(argv[1]);
}
