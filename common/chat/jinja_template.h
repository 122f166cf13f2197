// A compiled Jinja template: minijinja behind the C interface of common/chat/jinja.
#ifndef TANDEM_COMMON_CHAT_JINJA_TEMPLATE_H_
#define TANDEM_COMMON_CHAT_JINJA_TEMPLATE_H_

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/chat/jinja/jinja.h"
#include "nlohmann/json.hpp"

namespace tandem {

// Limits of one render. What exceeds them is cut off with an error.
struct ChatTemplateLimits {
  // A step is an instruction of the template, or 64 bytes of data that the template makes. So the
  // default bounds a render to about half a second and 256 MB. A conversation of 1,000 messages
  // takes about 100,000 steps in most templates.
  uint64_t steps = 4'000'000;
  // How many loops, blocks and macros may run inside each other. A call of a macro counts as four.
  // Templates that describe tools by recursive macros need about 40. More than 500 counts as 500.
  uint64_t depth = 400;
  uint64_t output_bytes = uint64_t{64} << 20;
  uint64_t template_bytes = uint64_t{1} << 20;
  // The last resort, for what steps do not count. A render that reaches one of these leaves a
  // sleeping thread and its memory behind, and a template that does so four times is given up.
  uint64_t memory_bytes = uint64_t{512} << 20;
  uint64_t cpu_nanoseconds = uint64_t{3'000'000'000};
};

class JinjaTemplate {
 public:
  // Fails with INVALID_ARGUMENT for a template that does not compile, and names the line.
  static absl::StatusOr<JinjaTemplate> Compile(std::string_view source,
                                               const ChatTemplateLimits& limits);

  // Renders with the keys of the object `variables`, in which the order of keys counts (tojson,
  // loops). `now` is what strftime_now prints, in the zone of the process. Fails with
  // INVALID_ARGUMENT; the message has no path. `fits_other_values`, if not null, becomes true if
  // the failure may depend on the types of values, and is neither a limit nor raised on purpose.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& variables, std::time_t now,
                                     bool* fits_other_values = nullptr) const;

 private:
  struct Free {
    void operator()(const TandemJinjaTemplate* engine) const { tandem_jinja_free(engine); }
  };
  JinjaTemplate(const TandemJinjaTemplate* engine, const ChatTemplateLimits& limits)
      : engine_(engine), limits_(limits) {}

  std::unique_ptr<const TandemJinjaTemplate, Free> engine_;
  ChatTemplateLimits limits_;
};

// Gives the blocks {% generation %} … {% endgeneration %}, with which transformers finds the tokens
// of the assistant in training data, a tag that the engine knows and that prints the same. Lines
// keep their numbers.
std::string WithoutGenerationTags(std::string_view source);

}  // namespace tandem

#endif  // TANDEM_COMMON_CHAT_JINJA_TEMPLATE_H_
