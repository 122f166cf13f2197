// Writes parts of JSON texts.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_JSON_TEXT_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_JSON_TEXT_H_

#include <string>
#include <string_view>

namespace tandem::gateway {

// Returns the text as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. A line
// break never stays one, so that the string fits into one line of a server-sent event.
std::string JsonText(std::string_view text);

// Returns the number, or null if it is not finite.
std::string JsonNumber(double number);

// Returns "data: JSON" and the empty line that ends a server-sent event.
std::string SseEvent(std::string_view json);

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_JSON_TEXT_H_
