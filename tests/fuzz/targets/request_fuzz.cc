// Checks Generate requests, and lets toy workers serve them to their end.
//
// The input is a list of requests: for each, a byte and a GenerateRequest (a chunk). The byte is
// the number of the workers' messages before the next request. 255 also cancels the previous
// request.
#include "common/tokenizer/text/unicode.h"
#include "services/router/request/request_validator.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/parse.h"
#include "tests/router/engine_driver.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  constexpr int kMaxRequests = 16;
  EngineOptions options;
  options.max_queue = 4;
  testing::EngineDriver driver(options);
  driver.Start();
  uint64_t last_random = 0;
  const RequestValidator validator({}, &driver.tokenizer, [&] { return ++last_random; });
  ServedModel served;
  served.model = "toy-target";
  served.draft_models = {"toy-draft"};
  served.vocabulary_size = 64;
  served.max_context_tokens = 64;
  served.end_of_text_ids = {63};

  fuzz::FuzzInput input(data, size);
  std::map<CallId, int> max_tokens;
  for (int i = 0; i < kMaxRequests && !input.empty(); ++i) {
    const unsigned num_messages = input.Byte();
    v1::GenerateRequest request;
    if (!fuzz::Parse(input.Chunk(), &request)) continue;
    auto resolved = validator.Validate(request, served);
    if (resolved.ok()) {
      const int limit = resolved->max_tokens;
      max_tokens[driver.Send(*std::move(resolved))] = limit;
    }
    if (num_messages == 255 && !max_tokens.empty()) driver.Cancel(max_tokens.rbegin()->first);
    for (unsigned step = 0; step < num_messages && driver.Step(); ++step) {
    }
  }
  fuzz::Check(driver.Run(), "the engine comes to rest");
  for (const auto& [call, limit] : max_tokens) {
    const testing::CallResult& result = driver.calls[call];
    fuzz::Check(result.status.has_value(), "every call ends");
    fuzz::Check(static_cast<int>(result.ids.size()) <= limit, "max_tokens is kept");
    fuzz::Check(result.status->ok() == result.completion.has_value(),
                "a call that ends well has a completion, and no other");
    fuzz::Check(!FindInvalidUtf8(result.text).has_value(), "text is UTF-8");
  }
  return 0;
}
